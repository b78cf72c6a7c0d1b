// The experiments of the lab: choosing one, and what is known of the one that is played.

import { $, language, named, t, valued } from './words.js';
import { element, heading, lineOf, tableOf } from './panels.js';

const sentence = (s) => { const one = s.charAt(0).toUpperCase() + s.slice(1); return /[.!?:]$/.test(one) ? one : `${one}.`; };

// english marks what experiments say of themselves, for a reader in another language.
function english(name, text, className) {
  const e = element(name, text, className);
  e.lang = 'en';
  return e;
}

// told is a sentence of an experiment in the language of the page, or in English.
function told(name, text, zh) {
  if (language() !== 'zh' || !zh) return english(name, sentence(text));
  return element(name, /[。！？]$/.test(zh) ? zh : `${zh}。`);
}

export const titled = (e) => (language() === 'zh' && e.zh.title ? e.zh : e);

// partWords say what is done in a part, and what is expected and found.
export function partWords(part) {
  if (!part) return [];
  const labelled = (label, text, zh) => {
    const p = element('p');
    p.append(element('b', `${label}: `), told('span', text, zh));
    return p;
  };
  const list = [told('p', part.does, part.zh?.does), ...(part.expect ? [labelled(t(part.mark ? 'promised' : 'expected'), part.expect, part.zh?.expect)] : [])];
  if (part.over) list.push(labelled(part.not_run ? t('not-run') : t('found'), part.not_run || part.finding.says, part.zh?.says));
  return list;
}

// remark says which role a part has, or the mark of a library on trial.
export const remark = (part) => element('span', t(part.mark ?? (part.remedy ? 'remedy' : 'failure')), 'tag');

export function link(text, to) {
  const a = element('a', text);
  a.href = to;
  return a;
}

// made tells that a part has a recording.
export const made = (p) => p.over && !p.not_run;

export class Lab {
  constructor(state, steers, post) {
    Object.assign(this, { state, steers, experiments: [] });
    $('experiment').addEventListener('change', () => this.drawChoice());
    $('make').addEventListener('click', () => post(`experiments/${$('experiment').value}`));
    $('end-play').addEventListener('click', () => post('sale/stop'));
  }

  async load() {
    const answer = await fetch('experiments');
    if (!answer.ok) return [];
    const { experiments, narration } = await answer.json();
    this.experiments = experiments;
    this.list();
    return narration;
  }

  // list names the experiments in the language of the page.
  list() {
    const kept = $('experiment').value;
    $('experiment').replaceChildren(...this.experiments.map((e) => {
      const option = element('option', `${e.number} ${titled(e).title}`);
      option.value = e.name;
      return option;
    }));
    if (kept) $('experiment').value = kept;
    this.drawChoice();
  }

  drawChoice() {
    const e = this.experiments.find((one) => one.name === $('experiment').value);
    $('claim').textContent = e ? titled(e).claim : '';
  }

  // draw shows the experiment that is played, or was played last.
  draw() {
    const { play, sale, guest } = this.state, playing = sale.phase === 'playing';
    $('make').disabled = !this.steers || Boolean(guest) || !['idle', 'ended'].includes(sale.phase);
    $('played').hidden = !play || !(play.reason || $('player').hidden);
    if (!play) return;
    $('play-title').textContent = `${play.number} ${titled(play).title}`;
    $('play-claim').textContent = titled(play).claim;
    $('end-play').hidden = !playing;
    $('pair').hidden = playing || Boolean(play.reason) || !play.parts.some((p, i) => p.remedy && made(p) && play.parts.slice(0, i).some((before) => !before.remedy && made(before)));
    $('end-play').disabled = !this.steers;
    $('play-verdict').textContent = play.error || (play.verdict ? t(`verdict.${play.verdict}`) : playing || play.reason ? '' : t('stopped'));
    $('play-verdict').className = `verdict ${play.error || play.verdict === 'not reproduced' ? 'bad' : play.verdict === 'reproduced' ? 'good' : ''}`;
    $('play-why').hidden = !play.verdict;
    $('play-why').textContent = [titled(play).why, titled(play).advice].filter(Boolean).join(' ');
    if (play.reason) this.reported(play);
    const at = play.parts.findLastIndex((p) => p.tries > 0 && !p.over);
    $('parts').replaceChildren(...play.parts.map((p, i) => this.part(p, playing && i === at)));
  }

  part(p, now) {
    const li = element('li', undefined, now ? 'now' : p.over ? (p.not_run || p.mark ? 'left' : p.finding.holds ? 'held' : 'missed') : '');
    if (now) li.setAttribute('aria-current', 'step');
    const state = now ? t('making', p.tries) : !p.over ? t('later') : p.mark ? '' : p.not_run ? t('not-run') : p.finding.holds ? t('holds') : t('holds-not');
    const head = element('h3', p.name);
    head.append(remark(p), element('span', state, 'state'));
    li.append(head);
    if (now || p.over) li.append(...partWords(p));
    if (p.trouble) li.append(element('p', t('trouble', p.trouble), 'warn small'));
    for (const one of p.tables || []) { const box = tableOf(one); box.lang = 'en'; li.append(box); }
    const files = element('p', undefined, 'small');
    for (const [key, file] of [['evidence', p.history], ['contradiction', p.contradiction]]) if (file) files.append(link(t(key), file), ' ');
    if (files.hasChildNodes()) li.append(files);
    return li;
  }

  // reported shows what a report has of an experiment beside its parts.
  reported(play) {
    const parts = play.parts.filter((p) => p.figures?.length);
    $('play-source').textContent = [play.source, play.verdict === 'reproduced' ? '' : play.reason].filter(Boolean).map(sentence).join(' ');
    $('play-fix').hidden = !play.fix;
    $('play-fix').lastElementChild.textContent = play.fix ?? '';
    $('measured').hidden = parts.length === 0;
    const figures = new Map(parts.flatMap((p) => p.figures.map((f) => [f.name, f])));
    $('play-figures').replaceChildren(
      lineOf(element('td'), ...parts.map((p) => heading(p.name))),
      ...[...figures.keys()].sort().map((name) => lineOf(heading(named(figures.get(name)), 'row'), ...parts.map((p) => element('td', valued(p.figures.find((f) => f.name === name)))))),
    );
  }
}
