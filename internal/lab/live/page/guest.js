// What replicas of others cannot do is greyed out, and says why.

import { $ } from './words.js';

// The groups of controls, each with the paragraph that has its reason.
const groups = {
  'why-form': '#form [name=replicas], #form [name=work_ms], #form [name=ttl_s], #form [name=room], #against',
  'why-lab': '#experiment, #make',
  'why-lanes': '#window, #freeze',
};

// greyOut greys out what needs processes of our own where others run the replicas. A recording has
// controls of its own.
export function greyOut({ guest, cannot_pause: unable }, recorded) {
  $('why-pause').hidden = !unable || Boolean(recorded);
  const theirs = Boolean(guest) && !recorded;
  for (const id of [...Object.keys(groups), 'why-faults']) $(id).hidden = !theirs;
  $('lanes-panel').classList.toggle('off', theirs);
  for (const e of document.querySelectorAll('#window, #freeze, #experiment, #against [value=replicas]')) e.disabled = theirs;
  if (theirs) for (const e of document.querySelectorAll('#form [name=replicas], #form [name=work_ms], #form [name=ttl_s], #form [name=room]')) e.disabled = true;
  for (const [id, controls] of Object.entries(groups)) for (const e of document.querySelectorAll(controls)) describe(e, id, theirs);
}

// describe has a screen reader say the reason with the control.
function describe(e, id, theirs) {
  const list = (e.getAttribute('aria-describedby') ?? '').split(' ').filter((one) => one && one !== id);
  if (theirs) list.push(id);
  if (list.length > 0) e.setAttribute('aria-describedby', list.join(' ')); else e.removeAttribute('aria-describedby');
}
