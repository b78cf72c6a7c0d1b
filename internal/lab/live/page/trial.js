// Lock libraries on trial: a table for those on each server, with a row for each question.
import { element, heading, lineOf, scrolling } from './panels.js';
import { $, language, t } from './words.js';

export class Trial {
  async open() {
    this.report ??= await (await fetch('trial')).json();
    this.draw();
  }

  draw() {
    if (!this.report) return;
    const { libraries } = this.report;
    $('libraries').replaceChildren(...[...new Set(libraries.map((l) => l.server))].map((on) => scrolling(this.table(on, libraries.filter((l) => l.server === on)), on)));
  }

  table(on, libraries) {
    const { cells, questions } = this.report, table = element('table'), zh = language() === 'zh';
    table.append(lineOf(heading(on), ...libraries.map((l) => heading(l.name))));
    for (const q of questions) {
      const asked = libraries.map((l) => cells.find((c) => c.library === l.name && c.question === q.name));
      if (asked.some((c) => c && c.mark !== 'not applicable')) table.append(lineOf(heading(zh ? q.zh : q.asks, 'row'), ...asked.map((c) => this.cell(c, zh))));
    }
    return table;
  }

  // cell has a mark that opens to what happened.
  cell(c, zh) {
    const td = element('td'), details = element('details');
    if (!c) return td;
    details.append(element('summary', t(c.mark), { '✓': 'good', '✗': 'bad' }[c.mark]), element('p', zh ? c.zh : c.says, 'small'));
    td.append(details);
    return td;
  }
}
