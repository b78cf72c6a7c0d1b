// The report of a run: its experiments in a table, of which one is shown, and played again.

import { element, facts, heading, lineOf } from './panels.js';
import { link, titled } from './lab.js';
import { $, named, t } from './words.js';

// unpacked is data of a saved file: JSON, compressed, in base64.
export function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
}

export class Report {
  // show is called with an experiment and its recordings.
  constructor(show) { this.show = show; }

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
    const { run: { experiments, facts: made, interrupted } } = this, came = experiments.filter((e) => e.verdict === 'reproduced').length;
    const trial = experiments.some((e) => e.parts?.some((p) => p.mark));
    $('report-title').textContent = trial ? t('trial') : t('came', came, experiments.length);
    $('interrupted').hidden = !interrupted;
    facts($('facts'), made.map((f) => [named(f), f.value]));
    $('made').replaceChildren(lineOf(...(trial ? ['no', 'trial', 'marks'] : ['no', 'lab', 'verdictWord', 'took', 'tries']).map((key) => heading(t(key)))), ...experiments.map((e) => this.row(e, trial)));
    const at = experiments.indexOf(this.chosen), beside = [['report.before', experiments[at - 1]], ['report.after', experiments[at + 1]]];
    $('chapters').replaceChildren(...beside.filter(([, e]) => e).map(([key, e]) => link(t(key), `#${e.name}`)));
  }

  row(e, trial) {
    const to = link(titled(e).title, `#${e.name}`), th = heading('', 'row'), kind = { reproduced: 'good', 'not reproduced': 'bad' }[e.verdict];
    if (e === this.chosen) to.setAttribute('aria-current', 'true');
    th.append(to);
    if (trial) return lineOf(element('td', String(e.number)), th, element('td', e.reason));
    const sign = { good: '✓', bad: '✗' }[kind] ?? '–';
    return lineOf(element('td', String(e.number)), th, element('td', `${sign} ${t(`verdict.${e.verdict}`)}`, kind), element('td', `${(e.seconds || 0).toFixed(1)} s`), element('td', String(e.tries || 0)));
  }
}
