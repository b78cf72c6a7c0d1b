// What happened to a lease: its renewals, votes and wake-ups, and when its TTL was over.

// leaseAt leaves out what happened to a lease after a time.
export function leaseAt(l, at) {
  const one = { ...l };
  for (const list of ['notes', 'steps']) if (l[list]) one[list] = l[list].filter((n) => n.at <= at);
  if (one.notes) one.woken = one.notes.filter((n) => n.what === 'woken').length;
  for (const step of ['granted', 'gave_up', 'lost', 'released', 'died', 'outlived']) if (one[step] > at) one[step] = 0;
  one.beside = l.beside?.filter((o) => o.from <= at).map((o) => ({ ...o, to: o.to <= at ? o.to : 0 }));
  return one;
}

// symbols of what happens at a moment, around 0, 0: a shape for each, as well as a colour.
export const symbols = {
  renewed: 'M0 -5V5M-3 5H3', 'not-renewed': 'M-4 -4L4 4M-4 4L4 -4', expired: 'M-5 -5H5L0 4Z', lost: 'M0 -6L5 0L0 6L-5 0Z',
  granted: 'M-4 -5L4 0L-4 5Z', released: 'M-4 -4H4V4H-4Z', woken: 'M0 -4A4 4 0 1 1 -0.1 -4Z', 'voted-for': 'M-5 0L-1 4L5 -4', 'voted-against': 'M-5 0H5', 'no-vote': 'M-4 -4L4 4M-4 4L4 -4',
};

// stepClasses are the kinds of steps that have a colour of their own.
export const stepClasses = { held: 'read', acquire: 'wait', read: 'read', work: 'work', write: 'write', commit: 'commit', rollback: 'rollback', release: 'release' };

// endOf is when a lease had ended for its holder; one that has not ends later than now.
export const endOf = (l) => Math.min(...[l.lost, l.released, l.died].filter(Boolean), Infinity);

// momentsOf lists what happened to a lease, each with its time, its symbol and its details.
export function momentsOf(l) {
  const end = endOf(l);
  const list = !l.lock ? [] : [{ at: l.granted, took: end === Infinity ? undefined : end - l.granted, what: end === Infinity ? 'granted' : 'held', of: l.key }, { at: l.lost, what: 'lost' }, { at: l.released, what: 'released' }];
  for (const n of l.notes || []) list.push({ ...n, of: n.by });
  if (l.outlived < end) list.push({ at: l.outlived, what: 'expired' });
  return list.filter((m) => m.at);
}
