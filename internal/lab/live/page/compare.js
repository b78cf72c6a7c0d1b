// Two sales on the same axes, with their verdicts beside each other.

import { $, t } from './words.js';
import { sides } from './beside.js';
import { Charts } from './charts.js';
import { element, heading, lineOf } from './panels.js';
import { figuresOf, verdictWords } from './verdict.js';

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
  constructor() {
    Object.assign(this, { sales: [], state: { from: 0, pair: true, apart: true, marks: [], points: [] } });
    this.charts = new Charts(this.state, 'compare');
  }

  // add keeps a sale that is over, beside the one before it.
  add(sale, points, from) {
    if (points.length > 0) this.sales = [...this.sales, { sale, points: [...points], from }].slice(-2);
  }

  has(sale) { return this.sales.some((s) => s.sale.item === sale.item); }

  get ready() { return this.sales.length === 2; }

  name({ sale }) {
    const v = sale.verdict;
    return [v.strategy, sale.modes.length === 1 && v.group && t('group'), sale.modes.length === 1 && v.fence && t('fence'), t('onReplicas', v.replicas)].filter(Boolean).join(', ');
  }

  draw() {
    if (!this.ready || $('compare').hidden) return;
    this.state.points = this.sales.flatMap(({ points, from }, i) => points.map((p) => ({ ...p, side: sides[i], at: p.at - from }))).sort((a, b) => a.at - b.at);
    this.charts.rebuild();
    this.table();
  }

  table() {
    const verdicts = this.sales.map((s) => s.sale.verdict), columns = verdicts.map((v) => [[t('verdict'), verdictWords(v)], ...figuresOf(v)]);
    $('compare-table').replaceChildren(
      lineOf(element('td'), ...this.sales.map((s, i) => heading(`${sides[i]}: ${this.name(s)}`))),
      ...columns[0].map(([name], i) => lineOf(heading(name, 'row'), ...columns.map((list, k) => element('td', list[i][1], i > 0 ? '' : verdicts[k].clean ? 'good' : 'bad')))),
    );
  }
}
