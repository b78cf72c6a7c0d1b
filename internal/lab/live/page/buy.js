// The page of a phone in a class: one button, which makes a real purchase.

import { $, change, language, number, t, words } from './words.js';

const kept = 'stocklab-buyer'; // of this tab: after a reload it is the same buyer
const pause = 200; // between two purchases, in ms; the server wants 150
let me = JSON.parse(sessionStorage.getItem(kept) || 'null');
let last;

async function post(path, body) {
  $('said').textContent = '';
  const headers = { 'Content-Type': 'application/json' };
  if (me) headers.Authorization = `Bearer ${me.token}`;
  try {
    const answer = await fetch(path, { method: 'POST', headers, body: body ? JSON.stringify(body) : undefined });
    return { status: answer.status, body: await answer.json() };
  } catch (failure) {
    return { status: 0, body: { error: String(failure.message || failure) } };
  }
}

// refuse says why the server did not do it: in its own words, which are English, or in those of the page.
function refuse(status, error) {
  const known = t(`refused.${status}`);
  $('said').textContent = known.startsWith('refused.') ? error : known;
}

function draw() {
  words();
  $('join').hidden = Boolean(me);
  $('shop').hidden = !me;
  $('me').textContent = me ? me.name : '';
  if (!last) { $('got').textContent = $('mine').textContent = ''; return; }
  const { last: what, bought, no, of } = last, sold = what === 'sold', held = no ? t('bought.no', no, of) : '';
  $('got').textContent = sold ? held : t(`bought.${what}`).replace(/^bought\..*/, t('bought.failed', what));
  $('got').className = `verdict ${sold && no <= of ? 'good' : what === 'unknown' ? 'warn' : 'bad'}`;
  $('mine').textContent = `${t('bought.mine', number(bought))} ${sold ? '' : held}`.trim();
}

async function join(name) {
  me = null;
  const button = document.querySelector('#join button');
  button.disabled = true; // a second request would find the name taken
  const { status, body } = await post('buy/join', { name });
  button.disabled = false;
  if (status !== 200) refuse(status, body.error);
  else {
    me = { name, token: body.token };
    sessionStorage.setItem(kept, JSON.stringify(me));
  }
  draw();
  if (me) $('buy').focus();
}

async function buy() {
  $('buy').disabled = true;
  const { status, body } = await post('buy');
  setTimeout(() => { $('buy').disabled = false; if (me) $('buy').focus(); }, pause);
  if (status === 200) last = body;
  else if (status === 403) { // the class is another one now
    sessionStorage.removeItem(kept);
    $('name').value = me.name;
    me = last = null;
  } else refuse(status, body.error);
  draw();
}

$('join').addEventListener('submit', (e) => { e.preventDefault(); join($('name').value.trim()); });
$('buy').addEventListener('click', buy);
$('language').addEventListener('click', () => { change(language() === 'zh' ? 'en' : 'zh'); draw(); });
draw();
