// Two sales on the same axes, with their verdicts beside each other.

import { number } from './words.js';
import { verdictWords } from './verdict.js';

const $ = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const inks = ['hold', 'warn'];

// otherwise are the settings of the second sale: those of the first but for one thing.
export function otherwise(settings, what) {
  switch (what) {
    case 'replicas': return { ...settings, replicas: settings.replicas === 1 ? 3 : 1 };
    case 'group': return { ...settings, group: !settings.group };
    case 'fence': return { ...settings, fence: !settings.fence };
    default: return undefined;
  }
}

export class Compare {
  constructor(t, element) {
    Object.assign(this, { t, element, sales: [], plots: [] });
    new ResizeObserver(() => this.plots.forEach((p) => p.setSize({ width: Math.max(200, $('compare-stock').clientWidth), height: p.height }))).observe($('compare-stock'));
  }

  // add keeps a sale that is over, beside the one before it.
  add(sale, points, from) {
    if (points.length > 0) this.sales = [...this.sales, { sale, points: [...points], from }].slice(-2);
  }

  has(sale) { return this.sales.some((s) => s.sale.item === sale.item); }

  get ready() { return this.sales.length === 2; }

  name({ sale }) {
    const v = sale.verdict, { t } = this;
    return [v.strategy, sale.modes.length === 1 && v.group && t('group'), sale.modes.length === 1 && v.fence && t('fence'), t('onReplicas', v.replicas)].filter(Boolean).join(', ');
  }

  draw() {
    for (const p of this.plots) p.destroy();
    this.plots = [];
    if (!this.ready || $('compare').hidden) return;
    const { t } = this;
    this.chart('compare-stock', [[t('sold'), undefined, (p) => (p.seen ? p.sold : null)], [t('left'), [7, 4], (p) => (p.seen ? p.stock : null)]]);
    this.chart('compare-rate', [[t('sold'), undefined, (p) => (p.seconds > 0 ? Math.round(p.answers.sold / p.seconds) : null)]]);
    this.table();
  }

  // chart draws each measure of both sales, from the begin of each.
  chart(id, measures) {
    const tables = this.sales.map(({ points, from }) => [points.map((p) => (p.at - from) / 1000), ...measures.map(([, , pick]) => points.map(pick))]);
    const axis = { stroke: color('soft'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const series = this.sales.flatMap((_, i) => measures.map(([label, dash]) => ({ label: `${'AB'[i]} ${label}`, stroke: color(inks[i]), width: 2, dash, points: { show: false }, spanGaps: true })));
    this.plots.push(new uPlot({
      width: Math.max(200, $(id).clientWidth), height: 190,
      scales: { x: { time: false, range: (_, low, high) => [0, high ?? 1] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, high ?? 1) * 1.06] } },
      axes: [{ ...axis, size: 30, values: (_, v) => v.map((n) => `${n} s`) }, { ...axis, size: 56 }],
      legend: { live: false, markers: { width: 2, dash: (u, i) => (u.series[i].dash ? 'dashed' : 'solid') } }, series: [{}, ...series], cursor: { drag: { x: false, y: false } },
    }, uPlot.join(tables), $(id)));
  }

  table() {
    const { t, element } = this, verdicts = this.sales.map((s) => s.sale.verdict);
    const rows = [
      [t('verdict'), verdictWords], [t('f.stock'), (v) => number(v.stock)], [t('sold'), (v) => number(v.sold)], [t('left'), (v) => number(v.left)],
      [t('f.oversold'), (v) => number(v.oversold)], [t('lostUpdates'), (v) => number(v.lost)], [t('reqs'), (v) => number(Math.round(v.per_second))],
      [t('p'), (v) => `${v.p50_ms.toFixed(1)} / ${v.p99_ms.toFixed(1)}`],
    ];
    const head = element('tr');
    head.append(element('td'), ...this.sales.map((s, i) => { const th = element('th', `${'AB'[i]}: ${this.name(s)}`); th.scope = 'col'; return th; }));
    $('compare-table').replaceChildren(head, ...rows.map(([name, of]) => {
      const tr = element('tr'), th = element('th', name);
      th.scope = 'row';
      tr.append(th, ...verdicts.map((v) => element('td', of(v), name === t('verdict') ? (v.clean ? 'good' : 'bad') : undefined)));
      return tr;
    }));
  }
}
