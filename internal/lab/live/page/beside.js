// A failure and what helps against it as one recording, from the same zero: A and B on the same axes.

import { moments } from './story.js';

export const sides = ['A', 'B'];

const leaseTimes = ['asked', 'granted', 'gave_up', 'lost', 'released', 'died', 'expires', 'outlived'];

function startOf(r) {
  let from = Infinity;
  for (const one of [...r.points, ...r.marks, ...r.leases]) from = Math.min(from, one.at ?? one.asked);
  return from;
}

// moved is a recording with its times less so much, and its holders named by their side.
function moved(r, side, less) {
  const at = (n) => (n ? n - less : n), name = (who) => (who ? `${side} ${who}` : who);
  const after = (list) => list?.map((n) => ({ ...n, at: at(n.at) }));
  return {
    points: r.points.map((p) => ({ ...p, side, at: at(p.at), seen: at(p.seen) })),
    marks: r.marks.map((m) => ({ ...m, side, at: at(m.at), who: name(m.who) })),
    leases: r.leases.map((l) => ({
      ...l, id: `${side} ${l.id}`, lock: l.lock && `${side} ${l.lock}`, holder: name(l.holder), ...Object.fromEntries(leaseTimes.map((k) => [k, at(l[k])])),
      ahead: name(l.ahead), beside: l.beside?.map((o) => ({ holder: name(o.holder), from: at(o.from), to: at(o.to) })), notes: after(l.notes), steps: after(l.steps),
    })),
    machines: r.machines.map((m) => ({ ...m, name: name(m.name) })),
  };
}

// beside lays b next to a.
function beside(a, b) {
  const zero = startOf(a), both = [moved(a, 'A', 0), moved(b, 'B', startOf(b) - zero)], all = (of) => both.flatMap(of);
  const told = both.flatMap((r, i) => moments(r, Infinity).map((m) => ({ ...m, side: m.who ? '' : sides[i] })));
  return {
    ...a, pair: [a.part, b.part],
    points: all((r) => r.points).sort((x, y) => x.at - y.at), marks: all((r) => r.marks).sort((x, y) => x.at - y.at),
    leases: all((r) => r.leases), machines: all((r) => r.machines),
    lanes: { ...a.lanes, whole: Math.max(a.lanes.whole || 0, b.lanes.whole ? b.lanes.whole - startOf(b) + zero : 0) },
    told: told.sort((x, y) => x.at - y.at),
  };
}

const pairOf = (a, b) => ({ title: `A ${a.part.name} | B ${b.part.name}`, make: () => beside(a, b) });

// paired adds to recordings those of each failure beside the remedies that follow it: each is made when it
// is chosen.
export function paired(recordings) {
  const pairs = [];
  let failure;
  for (const r of recordings) {
    if (!r.part) continue;
    if (!r.part.remedy) failure = r; else if (failure) pairs.push(pairOf(failure, r));
  }
  return [...pairs, ...recordings];
}
