// The trace of a lease: the steps of its request and what happened to it, as bars and as a table.

import { endOf, momentsOf, stepClasses, symbols } from './notes.js';
import { span, svg } from './lanes.js';
import { element, facts, heading, lineOf, scrolling } from './panels.js';
import { language, t } from './words.js';

const wide = 200, high = 14;

export class Trace {
  constructor(lanes) {
    Object.assign(this, { lanes, lease: null });
    this.box = document.getElementById('trace');
    this.body = document.getElementById('trace-body');
    document.getElementById('trace-close').addEventListener('click', () => this.close());
    this.box.addEventListener('keydown', (e) => { if (e.key === 'Escape') this.close(); });
    lanes.opened = (l) => this.show(l);
    lanes.redrawn = () => this.refresh();
  }

  show(lease) {
    this.lease = lease;
    this.box.hidden = false;
    this.draw();
    document.getElementById('trace-title').focus();
  }

  close() {
    const inside = this.box.contains(document.activeElement);
    this.lease = null;
    this.box.hidden = true;
    if (inside) this.lanes.box.focus();
  }

  // refresh draws what was recorded of the lease since, and goes with the sale.
  refresh() {
    if (!this.lease) return;
    const now = this.lanes.state.leases.get(this.lease.id);
    if ((!now || now === this.lease) && this.language === language()) return;
    if (now) this.lease = now;
    this.draw();
  }

  draw() {
    const { lease: l } = this;
    this.language = language();
    const title = document.getElementById('trace-title').textContent = t('traceOf', l);
    const pairs = !l.lock ? [] : [['TTL', l.ttl ? span(l.ttl) : t('tr.noTTL')], [t('tr.wakes'), String(l.woken || 0)]];
    const rows = [...(l.steps || []), ...momentsOf(l)].sort((a, b) => a.at - b.at || (b.took || 0) - (a.took || 0));
    const from = Math.min(l.asked, ...rows.map((r) => r.at)), ends = rows.map((r) => r.at + (r.took || 0));
    const to = Math.max(from + 0.01, ...ends, endOf(l) === Infinity ? 0 : endOf(l));
    const table = element('table'), head = lineOf(...['tr.step', 'tr.at', 'tr.took', 'tr.bar', 'tr.of'].map((key) => heading(t(key))));
    table.append(element('caption', t('tr.caption', span(to - from)), 'unseen'), head, ...rows.map((r) => this.row(r, from, to)));
    this.body.replaceChildren(facts(element('dl', undefined, 'figures'), pairs), scrolling(table, title));
    if (!l.steps?.length) this.body.append(element('p', t('tr.untraced'), 'soft small'));
  }

  row(r, from, to) {
    const bad = r.error || ['not-renewed', 'lost', 'expired', 'no-vote'].includes(r.what), bar = element('td');
    bar.append(this.bar(r, from, to));
    const details = [r.what.includes('vote') ? t('tr.master', r.of) : r.of, r.left === undefined ? '' : t('tr.left', span(r.left)), r.error];
    const tr = lineOf(heading(t(`tr.${r.what}`), 'row'), element('td', `+${span(r.at - from)}`), element('td', r.took === undefined ? '' : span(r.took)), bar, element('td', details.filter(Boolean).join(', ')));
    tr.classList.toggle('bad', bad);
    return tr;
  }

  bar(r, from, to) {
    const x = (at) => 6 + ((at - from) / (to - from)) * (wide - 12), picture = svg('svg', { class: 'steps', viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, 'aria-hidden': 'true' });
    picture.append(svg('line', { class: 'grid', x1: 6, x2: wide - 6, y1: high / 2, y2: high / 2 }));
    if (symbols[r.what]) picture.append(svg('path', { class: `note ${r.what}`, d: symbols[r.what], transform: `translate(${x(r.at).toFixed(1)} ${high / 2})` }));
    else picture.append(svg('rect', { class: `step ${stepClasses[r.what] || ''}`, x: x(r.at).toFixed(1), y: 2, width: Math.max(1.5, x(r.at + r.took) - x(r.at)).toFixed(1), height: high - 4, rx: 1.5 }));
    return picture;
  }
}
