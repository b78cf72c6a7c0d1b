// A recording is shown as it was at a moment: what came later is left out.

import { paired, sides } from './beside.js';
import { partWords, remark } from './lab.js';
import { calm } from './lanes.js';
import { leaseAt } from './notes.js';
import { $, t } from './words.js';

const became = { kill: 'down', ended: 'down', pause: 'paused', trapped: 'paused', resume: 'running', start: 'running' };

// extent is from the first to the last time of a recording.
export function extent(r) {
  const times = [...r.points.map((p) => p.at), ...r.marks.map((m) => m.at), ...r.leases.flatMap((l) => [l.asked, l.granted, l.released, l.lost].filter(Boolean))];
  if (times.length === 0) return [0, 1];
  let from = Infinity, to = -Infinity;
  for (const at of times) { from = Math.min(from, at); to = Math.max(to, at); }
  return [from, Math.max(to, from + 1)];
}

// momentOf is the state of the page at a time of a recording.
export function momentOf(r, at, end) {
  const until = (list) => list.filter((one) => one.at <= at);
  const leases = r.leases.filter((l) => l.asked <= at).map((l) => leaseAt(l, at)), marks = until(r.marks);
  const granted = leases.filter((l) => l.granted), waiting = {};
  for (const l of leases) if (!l.granted && !l.gave_up) waiting[l.holder] = (waiting[l.holder] || 0) + 1;
  const status = new Map(marks.filter((m) => became[m.what]).map((m) => [m.who, became[m.what]]));
  const over = at >= end, sells = marks.filter((m) => m.what === 'sell').length;
  return {
    points: until(r.points), marks, leases: new Map(leases.map((l) => [l.id, l])),
    machines: r.machines.map((m) => ({ ...m, status: status.get(m.name) || 'running' })),
    lanes: over && r.lanes.granted ? r.lanes : { until: at, whole: r.lanes.whole, waiting, granted: granted.length, overlaps: granted.filter((l) => l.beside?.length).length },
    sale: { ...r.sale, phase: over ? r.sale.phase : 'selling', modes: sells > 0 && !over ? r.sale.modes.slice(0, sells) : r.sale.modes, verdict: over ? r.sale.verdict : undefined, error: over ? r.sale.error : undefined },
  };
}

// titled are the words of a part under its name.
function titled(name, part) {
  const box = document.createElement('section'), head = document.createElement('h3');
  head.append(`${name} `, remark(part));
  box.append(head, ...partWords(part));
  return box;
}

// Player plays recordings. show is called with a recording and the state of a moment.
export class Player {
  constructor(show) {
    Object.assign(this, { show, playing: false });
    $('play').addEventListener('click', () => (this.playing ? this.stop() : this.play()));
    $('scrub').addEventListener('input', () => { this.stop(); this.go(Number($('scrub').value)); });
    $('recording').addEventListener('change', () => this.choose(Number($('recording').value)));
  }

  // open begins at the end, where all is there.
  open(recordings) {
    this.recordings = paired(recordings);
    $('recording').replaceChildren(...this.recordings.map((r, i) => { const o = document.createElement('option'); o.value = i; o.textContent = r.title; return o; }));
    $('which').hidden = this.recordings.length < 2;
    this.choose(0);
  }

  choose(i) {
    this.stop();
    const chosen = this.recordings[i];
    this.recording = chosen.make?.() ?? chosen;
    [this.from, this.end] = extent(this.recording);
    $('scrub').max = String(Math.ceil(this.end - this.from));
    this.words();
    this.go(this.end - this.from);
  }

  // words say what is played, of two recordings side by side.
  words() {
    const { part, pair } = this.recording ?? {};
    $('player-words').classList.toggle('pair', Boolean(pair));
    $('player-words').replaceChildren(...(pair ? pair.map((one, i) => titled(`${sides[i]} ${one.name}`, one)) : partWords(part)));
  }

  go(after) {
    this.after = Math.min(Math.max(0, after), this.end - this.from);
    $('scrub').value = String(this.after);
    $('moment').textContent = `${(this.after / 1000).toFixed(this.end - this.from < 10000 ? 2 : 1)} s`;
    this.show(this.recording, momentOf(this.recording, this.from + this.after, this.end), (this.end - this.from) / 1000);
  }

  play() {
    this.playing = true;
    $('play').textContent = t('play-stop');
    if (this.after >= this.end - this.from) this.after = 0;
    const run = this.run = {}; // what was stopped may have a step to come
    let before = performance.now();
    const step = () => {
      if (!this.playing || this.run !== run) return;
      const now = performance.now();
      this.go(this.after + (now - before) * Number($('speed').value));
      before = now;
      if (this.after >= this.end - this.from) { this.stop(); return; }
      if (calm.matches) setTimeout(step, 500); else requestAnimationFrame(step);
    };
    step();
  }

  stop() {
    this.playing = false;
    $('play').textContent = t('play');
  }
}
