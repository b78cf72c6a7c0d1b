// Lock libraries on trial: a table for those on each server, with a row for each question.
import { element } from './panels.js';
import { language } from './words.js';

export class Trial {
  constructor(box, t) { Object.assign(this, { box, t }); }

  async open() {
    this.report ??= await (await fetch('trial')).json();
    this.draw();
  }

  draw() {
    if (!this.report) return;
    const { libraries } = this.report;
    this.box.replaceChildren(...[...new Set(libraries.map((l) => l.server))].map((on) => {
      const scroll = element('div', undefined, 'scroll');
      scroll.tabIndex = 0;
      scroll.append(this.table(on, libraries.filter((l) => l.server === on)));
      return scroll;
    }));
  }

  table(on, libraries) {
    const { cells, questions } = this.report, table = element('table'), zh = language() === 'zh';
    const row = (first, others) => { const tr = element('tr'); tr.append(element('th', first), ...others); table.append(tr); };
    row(on, libraries.map((l) => element('th', l.name)));
    for (const q of questions) {
      const asked = libraries.map((l) => cells.find((c) => c.library === l.name && c.question === q.name));
      if (asked.some((c) => c && c.mark !== 'not applicable')) row(zh ? q.zh : q.asks, asked.map((c) => this.cell(c, zh)));
    }
    return table;
  }

  // cell has a mark that opens to what happened.
  cell(c, zh) {
    const td = element('td'), details = element('details');
    if (!c) return td;
    details.append(element('summary', this.t(c.mark), { '✓': 'good', '✗': 'bad' }[c.mark]), element('p', zh ? c.zh : c.says, 'small'));
    td.append(details);
    return td;
  }
}
