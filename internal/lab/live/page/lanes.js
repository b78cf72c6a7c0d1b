// Who holds the lock: a lane for each replica, with its leases as the replica recorded them.

import { endOf, stepClasses, symbols } from './notes.js';
import { t } from './words.js';

const space = 'http://www.w3.org/2000/svg';
const steps = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 30000];
const wanted = 24; // leases that an automatic window has room for
const left = 118, high = 46, foot = 22;
const lateLeases = 1000; // milliseconds after an answer in which its lease is seen, also on a machine that is busy
export const calm = matchMedia('(prefers-reduced-motion: reduce)');

export function svg(name, attributes, text) {
  const e = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

export const span = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(2)} ms`);

export class Lanes {
  constructor(state) {
    Object.assign(this, { state, frozen: null, chosen: null, due: false });
    this.box = document.getElementById('lanes');
    this.choice = document.getElementById('window');
    const freeze = document.getElementById('freeze');
    freeze.addEventListener('click', () => (this.frozen ? this.thaw() : this.freeze()));
    this.choice.addEventListener('change', () => this.draw());
    this.box.addEventListener('keydown', (e) => this.key(e));
    this.box.addEventListener('pointerdown', (e) => { this.pressed = { id: e.target.dataset?.lease, x: e.clientX, y: e.clientY }; });
    this.box.addEventListener('pointerup', (e) => { // a click would miss a bar that is drawn anew meanwhile
      const { id, x, y } = this.pressed || {};
      if (id && Math.hypot(e.clientX - x, e.clientY - y) < 8) this.open(id);
    });
    this.box.addEventListener('pointerover', (e) => { const id = e.target.dataset?.lease; if (id) this.choose(id); });
    new ResizeObserver(() => (this.frozen ? this.draw() : this.changed())).observe(this.box);
  }

  reset() { this.choose(null); this.thaw(); }

  freeze() {
    this.frozen = { leases: this.granted(), until: this.state.lanes.until, whole: this.state.lanes.whole || 0 };
    document.getElementById('freeze').setAttribute('aria-pressed', 'true');
    this.draw();
  }

  thaw() {
    this.frozen = null;
    document.getElementById('freeze').setAttribute('aria-pressed', 'false');
    this.draw();
  }

  granted() { return [...this.state.leases.values()].filter((l) => l.granted).sort((a, b) => a.granted - b.granted); }

  find(id) { return this.state.leases.get(id) || this.frozen?.leases.find((one) => one.id === id); }

  // open shows the trace of a lease; where the sale goes on, the lanes stand still meanwhile.
  open(id) {
    const l = this.find(id);
    if (!l) return;
    if (!this.frozen && this.state.lasts === undefined) this.freeze();
    this.choose(id);
    this.opened?.(l);
  }

  key(e) {
    if (e.key === 'Enter' && this.chosen) { e.preventDefault(); this.open(this.chosen); return; }
    if (e.key === 'Escape') { this.reset(); return; }
    if (e.key !== 'ArrowLeft' && e.key !== 'ArrowRight') return;
    e.preventDefault();
    if (!this.frozen) this.freeze();
    const list = this.frozen.leases, at = list.findIndex((l) => l.id === this.chosen);
    const next = at < 0 ? list.length - 1 : Math.min(list.length - 1, Math.max(0, at + (e.key === 'ArrowLeft' ? -1 : 1)));
    if (list[next]) this.choose(list[next].id);
  }

  choose(id) {
    this.chosen = id;
    for (const bar of this.box.querySelectorAll('.hold')) bar.classList.toggle('chosen', bar.dataset.lease === id);
    const l = this.find(id), says = document.getElementById('lease');
    if (!l) { says.textContent = ''; return; }
    const end = endOf(l);
    const held = end === Infinity ? t('stillHeld') : span(end - l.granted);
    says.textContent = !l.lock ? `${l.holder}: ${held}${l.error ? `, ${t(l.error)}` : ''}` : t('leaseSays', l, { wait: span(l.granted - l.asked), held });
  }

  // changed draws once a frame at most, and twice a second for those who want less motion.
  changed() {
    if (this.due || this.frozen) return;
    this.due = true;
    setTimeout(() => requestAnimationFrame(() => { this.due = false; this.draw(); }), calm.matches ? 500 : 60);
  }

  window(leases, until, whole) {
    const fixed = Number(this.choice.value);
    let width = fixed;
    if (!fixed) {
      const first = leases.at(-wanted) ?? leases[0];
      const need = first ? until - first.granted : 1000;
      width = steps.find((s) => s >= need) ?? steps.at(-1);
    }
    return [Math.max(until - width, Math.min(whole, until - steps[0])), until];
  }

  draw() {
    const { state } = this;
    const leases = this.frozen?.leases ?? this.granted(), whole = this.frozen?.whole ?? (state.lanes.whole || 0);
    const replicas = state.guest ? [] : state.machines.filter((m) => m.kind === 'replica'); // others record nothing
    const says = document.getElementById('lanes-says');
    const requests = this.requests = leases.length > 0 && !leases[0].lock; // of a history without leases
    document.getElementById('lanes-title').textContent = t(requests ? 'requests' : 'lanes');
    says.textContent = requests ? t('requestsSay', leases.length) : leases.length > 0 || state.lanes.granted > 0 ? t('granted', state.lanes.granted || 0, state.lanes.overlaps || 0) + (whole > 0 ? ` ${t('left2')}` : '')
      : this.lockless() ? t('noLock', state.sale.modes.at(-1).strategy) : '';
    document.getElementById('lanes').classList.toggle('two-now', state.lanes.overlaps > 0);
    const until = this.frozen?.until ?? state.lanes.until ?? 0;
    const width = Math.max(280, this.box.clientWidth), height = replicas.length * high + foot;
    const [from, to] = this.shown = this.window(leases, until, whole);
    const x = (at) => left + ((Math.min(to, Math.max(from, at)) - from) / (to - from || 1)) * (width - left - 4);
    const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height });
    picture.append(this.hatch());
    this.above = svg('g', {});
    const seen = leases.filter((l) => endOf(l) > from && l.granted < to);
    replicas.forEach((m, i) => this.lane(picture, m, i * high, width, seen.filter((l) => l.holder === m.name), x, to));
    for (const l of seen) for (const o of l.beside || []) this.two(picture, l, o, replicas, x);
    picture.append(this.above);
    this.axis(picture, from, to, width, height, x);
    this.box.replaceChildren(picture);
    if (this.chosen) this.choose(this.chosen);
    this.redrawn?.();
  }

  // lockless tells that the strategy has sold and no lease was recorded for it. A lease is seen a moment after the
  // answer to its purchase.
  lockless() {
    const { guest, sale, points } = this.state, last = points.at(-1)?.at ?? 0;
    return !guest && sale.modes?.length > 0 && points.some((p) => p.answers.sold > 0 && (sale.phase === 'ended' || p.at <= last - lateLeases));
  }

  hatch() {
    const defs = svg('defs', {}), pattern = svg('pattern', { id: 'hatch', width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
    pattern.append(svg('line', { class: 'hatch', x1: 0, y1: 0, x2: 0, y2: 7 }));
    defs.append(pattern);
    return defs;
  }

  lane(picture, machine, top, width, leases, x, now) {
    const waiting = this.state.lanes.waiting?.[machine.name] || 0;
    picture.append(
      svg('rect', { class: 'track', x: left, y: top + 4, width: width - left - 4, height: high - 10, rx: 3 }),
      svg('text', { class: 'lane', x: 0, y: top + 19 }, machine.name),
      svg('text', { class: 'soft', x: 0, y: top + 33 }, this.requests ? '' : machine.status === 'running' ? t('waiting', waiting) : t(`status.${machine.status}`)),
    );
    for (const l of leases) {
      const end = Math.min(endOf(l), now), a = x(l.granted), b = Math.max(a + 1.5, x(end)), w = x(l.asked);
      if (a - w > 0.5) picture.append(svg('rect', { class: 'wait', x: w, y: top + high - 12, width: a - w, height: 3 }));
      const kind = `hold${l.lost ? ' lost' : ''}${endOf(l) === Infinity ? ' open' : ''}${l.lock ? '' : ` ${l.error || ''}`}`;
      picture.append(svg('rect', { class: kind, x: a, y: top + 8, width: b - a, height: high - 22, rx: 2, 'data-lease': l.id }));
      if (!l.lock) for (const s of l.steps || []) if (s.what !== 'purchase') picture.append(svg('rect', { class: `step ${stepClasses[s.what] || ''}`, x: x(s.at), y: top + 12, width: Math.max(1, x(s.at + s.took) - x(s.at)), height: high - 30 }));
      const whole = String(l.token || ''), fits = (b - a - 6) / 7.5, text = whole.length <= fits ? whole : `…${whole.slice(-4)}`;
      if (whole && text.length <= fits) picture.append(svg('text', { class: 'token', x: a + 4, y: top + 23 }, text));
      this.notes(picture, l, top, x, now, { a, b });
      if (l.died && l.died <= now) picture.append(svg('path', { class: 'gone', d: `M${b - 4} ${top + 12}l8 10m0-10l-8 10` }));
    }
  }

  // notes draws what happened to a lease on its bar, each as a shape of its own.
  notes(picture, l, top, x, now, { a, b }) {
    const at = (what, when, y) => this.above.append(svg('path', { class: `note ${what}`, d: symbols[what], transform: `translate(${x(when).toFixed(1)} ${y})` }));
    const [from, to] = this.shown, seen = (when) => when >= from && when <= to;
    for (const n of l.notes || []) if (b - a > 10 && n.what.endsWith('renewed') && seen(n.at)) at(n.what, n.at, top + high - 20);
    for (const w of l.notes || []) if (w.what === 'woken' && seen(w.at) && w.at <= l.granted) picture.append(svg('rect', { class: 'woke', x: x(w.at) - 0.5, y: top + high - 15, width: 1, height: 7 }));
    if (l.outlived && l.outlived < Math.min(endOf(l), now) && seen(l.outlived)) {
      this.above.append(svg('line', { class: 'over-line', x1: x(l.outlived), x2: x(l.outlived), y1: top + 6, y2: top + high - 14 }));
      at('expired', l.outlived, top + 9);
    }
    if (l.lost && l.lost <= now && seen(l.lost)) at('lost', l.lost, top + high / 2 - 3);
  }

  // two draws the time during which a lease and another holder had the same lock; one that has not ended lasts until now.
  two(picture, lease, other, replicas, x) {
    const [begin, now] = this.shown, until = other.to || now;
    const rows = [lease, other].map((l) => replicas.findIndex((m) => m.name === l.holder)).filter((i) => i >= 0);
    if (rows.length === 0 || until <= begin || other.from >= now) return;
    const top = Math.min(...rows) * high + 4, bottom = (Math.max(...rows) + 1) * high - 6, start = x(other.from), end = Math.max(start + 1.5, x(until));
    picture.append(
      svg('rect', { class: 'two', x: start, y: top, width: end - start, height: bottom - top }),
      svg('line', { class: 'two-line', x1: start, x2: start, y1: top, y2: bottom }),
    );
  }

  axis(picture, from, to, width, height, x) {
    const marks = this.state.marks;
    marks.forEach((m, i) => {
      if (m.at < from || m.at > to) return;
      picture.append(svg('line', { class: 'mark', x1: x(m.at), x2: x(m.at), y1: 0, y2: height - foot }), svg('text', { class: 'mark-no', x: x(m.at) + 3, y: 11 }, String(i + 1)));
    });
    if (!(to > from) || to === 0) return;
    const parts = width > 600 ? 4 : 1;
    for (let i = 0; i <= parts; i++) {
      const at = to - ((to - from) * i) / parts;
      const anchor = i === 0 ? 'end' : i === parts ? 'start' : 'middle';
      picture.append(svg('text', { class: 'soft', x: x(at), y: height - 6, 'text-anchor': anchor }, i === 0 ? t('now') : t('before', span(to - at))));
    }
  }
}
