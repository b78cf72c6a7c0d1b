// What happens in an experiment, in sentences: from its marks, its leases and its stock. The words come
// with the experiments.

import { language, number } from './words.js';
import { endOf } from './notes.js';
import { element } from './panels.js';

const soon = 20; // milliseconds that are no delay

// most is how often a moment is told: of a crowd the first ones stand for all.
const most = (what, crowd) => (crowd ? { released: 0, granted: 1, waits: 1, 'gave-up': 1 }[what] : { granted: 4, released: 4, waits: 3, renewed: 1, woken: 0 }[what]) ?? 2;

// moments finds what is to be told, in the order of time.
export function moments({ leases, marks, points }, until) {
  const found = [];
  const add = (at, what, words = {}) => { if (at && at <= until) found.push({ at, what, ...words }); };
  const asked = leases.filter((l) => l.lock).sort((a, b) => a.asked - b.asked), granted = asked.filter((l) => l.granted);
  for (const l of asked.slice(0, 60)) { // the first to wait are told
    if (l.ahead && (l.granted || l.gave_up || until) - l.asked > soon) add(l.asked, 'waits', { who: l.holder, other: l.ahead });
  }
  for (const l of asked) add(l.gave_up, 'gave-up', { who: l.holder });
  for (const l of granted) {
    const who = l.holder, end = endOf(l), out = l.outlived;
    add(l.granted, 'granted', { who });
    for (const n of l.notes || []) if (n.what === 'renewed' || n.what === 'not-renewed') add(n.at, n.what, { who });
    if (out && l.died && l.died < out) add(out, 'freed', { who });
    else if (out && end > out + soon) add(out, 'expired', { who });
    add(l.lost, 'lost', { who });
    add(l.steps?.find((s) => s.what === 'rollback')?.at, 'rolled-back', { who });
    add(l.released, out && l.released > out + soon && !(l.lost < l.released) ? 'late' : 'released', { who });
  }
  for (const l of granted) {
    if (l.woke) add(l.released + 0.001, 'woken', { who: l.holder, n: l.woke }); // not every lock tells
    for (const o of l.beside || []) add(o.from, 'overlap', { who: l.holder, other: o.holder });
  }
  for (const m of marks) add(m.at, 'mark', { who: m.who, mark: m.what });
  const seen = points.filter((p) => p.seen), last = seen.at(-1);
  for (const [what, of] of [['oversold', (p) => p.oversold], ['lost-updates', (p) => p.lost]]) {
    if (last && of(last) > 0) { // it may be so for a moment alone
      const first = seen.find((p) => of(p) > 0);
      add(first.at, what, { n: number(of(first)) });
    }
  }
  for (const what of ['rejected', 'busy', 'failed', 'unknown']) add(points.find((p) => p.answers[what] > 0)?.at, what);
  return few(found.sort((a, b) => a.at - b.at), granted.length > 12);
}

function few(list, crowd) {
  const told = new Map(), both = new Set(list.filter((m) => m.what === 'overlap').map((m) => `${m.at} ${m.who}`));
  return list.filter((m) => {
    if (m.what === 'granted' && both.has(`${m.at} ${m.who}`)) return false; // the overlap says it
    const kind = m.what === 'mark' ? `${m.who} ${m.mark}` : m.what, n = (told.get(kind) || 0) + 1;
    told.set(kind, n);
    return n <= most(m.what, crowd);
  });
}

// say puts a moment into words.
export function say(m, lines) {
  let groups = [];
  const line = lines.find((l) => (m.what === 'mark' ? l.mark && (groups = new RegExp(l.mark).exec(m.mark)) : l.moment === m.what));
  if (!line) return [m.who, m.mark].filter(Boolean).join(' ');
  const text = line[language() === 'zh' ? 'zh' : 'en'].replace(/\{(\w+)\}/g, (_, name) => m[name] ?? '').replace(/\$(\d)/g, (_, n) => groups[n] ?? '');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export class Story {
  constructor() {
    this.box = document.getElementById('beats');
    this.panel = document.getElementById('story');
    this.lines = [];
  }

  // draw tells what happened from a time on until another.
  draw(found, from, lines = this.lines) {
    this.box.tabIndex = 0; // it scrolls
    this.panel.hidden = found.length === 0;
    const zero = Math.min(from, found[0]?.at ?? from);
    const texts = found.map((m) => `${((m.at - zero) / 1000).toFixed(2)} s ${m.side ? `${m.side}: ` : ''}${say(m, lines)}`);
    const shown = [...this.box.children];
    let same = 0; // what is there stays, so that a screen reader tells what is new
    while (same < texts.length && shown[same]?.dataset.text === texts[same]) same++;
    for (const li of shown.slice(same)) li.remove();
    for (const text of texts.slice(same)) {
      const li = element('li'), [time, unit, ...rest] = text.split(' ');
      li.dataset.text = text;
      li.append(element('time', `${time} ${unit}`), ` ${rest.join(' ')}`);
      this.box.append(li);
    }
  }
}
