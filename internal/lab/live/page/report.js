// The report of a run: its experiments in a table, of which one is shown, and played again.

import { element } from './panels.js';
import { titled } from './lab.js';
import { named } from './words.js';

const $ = (id) => document.getElementById(id);

// unpacked is data of a saved file: JSON, compressed, in base64.
export function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
}

export class Report {
  // show is called with an experiment and its recordings.
  constructor(t, show) { Object.assign(this, { t, show }); }

  async open() {
    this.run = await unpacked('run');
    addEventListener('hashchange', () => this.choose());
    document.title = document.querySelector('h1').textContent = 'stocklab lab';
    $('report').hidden = false;
    this.choose();
  }

  async choose() {
    const { experiments } = this.run, name = decodeURIComponent(location.hash.slice(1));
    const chosen = this.chosen = experiments.find((e) => e.name === name) ?? experiments[0];
    this.draw();
    const recordings = chosen ? await unpacked(`of-${chosen.name}`) : [];
    if (chosen === this.chosen) this.show(chosen, recordings);
    if (chosen?.name === name) $('played').scrollIntoView();
  }

  draw() {
    const { t, run: { experiments, facts, interrupted } } = this, came = experiments.filter((e) => e.verdict === 'reproduced').length;
    $('report-title').textContent = t('came', came, experiments.length);
    $('interrupted').hidden = !interrupted;
    $('facts').replaceChildren(...facts.map((f) => { const div = element('div'); div.append(element('dt', named(f)), element('dd', f.value)); return div; }));
    const head = element('tr');
    head.append(...['no', 'lab', 'verdictWord', 'took', 'tries'].map((key) => { const th = element('th', t(key)); th.scope = 'col'; return th; }));
    $('made').replaceChildren(head, ...experiments.map((e) => this.row(e)));
  }

  row(e) {
    const tr = element('tr'), link = element('a', titled(e).title), th = element('th'), kind = { reproduced: 'good', 'not reproduced': 'bad' }[e.verdict];
    link.href = `#${e.name}`;
    if (e === this.chosen) link.setAttribute('aria-current', 'true');
    th.scope = 'row';
    th.append(link);
    const sign = { good: '✓', bad: '✗' }[kind] ?? '–';
    tr.append(element('td', String(e.number)), th, element('td', `${sign} ${this.t(`verdict.${e.verdict}`)}`, kind), element('td', `${(e.seconds || 0).toFixed(1)} s`), element('td', String(e.tries || 0)));
    return tr;
  }
}
