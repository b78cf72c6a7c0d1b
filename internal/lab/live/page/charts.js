// The charts over time, with a line for each mark on all of them.

import { t } from './words.js';

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class Charts {
  // The boxes of the charts have ids that begin with of; those that are missing are not drawn.
  constructor(state, of = 'chart') {
    Object.assign(this, { state, of, plots: [], due: false });
    new ResizeObserver(() => this.resize()).observe(document.getElementById(`${of}-stock`));
  }

  // start is when the sale began: the zero of all time axes.
  start() { return this.state.from ?? this.state.marks[0]?.at ?? this.state.points[0]?.at ?? 0; }

  // lines are those of each chart: name, color, value of a point, dash. Of two recordings each has a color.
  lines() {
    const { state } = this, latency = (part) => (p) => p[part] || null, inLine = (kind) => (p) => p.line?.[kind] ?? null;
    const seen = (name) => (p) => (p.seen ? p[name] : null), rate = (kind) => (p) => (p.seconds > 0 ? Math.round(p.answers[kind] / p.seconds) : null);
    const both = (...list) => [['A', 'hold'], ['B', 'warn']].flatMap(([side, ink]) => list.map(([name, of, dash]) => [`${side} ${name}`, ink, (p) => (p.side === side ? of(p) : null), dash]));
    if (state.pair) return {
      stock: both([t('sold'), seen('sold')], [t('left'), seen('stock'), [7, 4]]),
      answers: both([t('sold'), rate('sold')], [t('rejected'), rate('rejected'), [7, 4]], [t('failed'), rate('failed'), [2, 4]]),
      latency: both(['p99', latency('p99')]),
    };
    return {
      stock: [[t('initial'), 'ink', () => state.sale.settings?.stock || null, [2, 4]], [t('sold'), 'hold', seen('sold')], [t('left'), 'warn', seen('stock'), [7, 4]], [t('oversold'), 'alarm', seen('oversold'), [10, 3]]],
      answers: [[t('sold'), 'good', rate('sold')], [t('rejected'), 'refused', rate('rejected'), [7, 4]], [t('busy'), 'edge', rate('busy'), [3, 3]], [t('failed'), 'alarm', rate('failed')], [t('unknown'), 'alarm', rate('unknown'), [2, 3]]],
      latency: [['p50', 'hold', latency('p50')], ['p99', 'warn', latency('p99'), [7, 4]]],
      line: [[t('line.waiting'), 'hold', inLine('waiting')], [t('line.admissions'), 'good', inLine('admissions'), [7, 4]], [t('line.left'), 'warn', inLine('left'), [2, 4]]],
    };
  }

  data(lines) {
    const { points } = this.state, start = this.start();
    return [points.map((p) => (p.at - start) / 1000), ...lines.map(([, , value]) => points.map(value))];
  }

  // drawn is how uPlot draws a line. Where stock and answers are points apart, a line leads over the other ones; of a latency there are points
  // alone.
  drawn([label, ink, , dash], ofLatency) {
    const apart = Boolean(this.state.apart);
    return { label, stroke: color(ink), width: 2, dash, points: { show: apart && ofLatency, size: 5 }, spanGaps: apart && !ofLatency, value: (_, v) => (v == null ? '' : String(Math.round(v * 100) / 100)) };
  }

  rebuild() {
    for (const p of this.plots) p.destroy();
    const axis = { stroke: color('soft'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    this.plots = Object.entries(this.lines()).flatMap(([id, lines]) => {
      const box = document.getElementById(`${this.of}-${id}`);
      if (!box) return [];
      const plot = new uPlot({
        width: Math.max(200, box.clientWidth), height: id === 'stock' ? 220 : 170,
        scales: { x: { time: false, range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(this.state.lasts ?? 5, high ?? 5)] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, high ?? 1) * 1.06] } },
        axes: [{ ...axis, size: 30, values: (_, v) => v.map((n) => `${n} s`) }, { ...axis, size: 56 }],
        legend: { live: false, markers: { width: 2, dash: (u, i) => { const d = u.series[i].dash; return !d ? 'solid' : d[0] < 4 ? 'dotted' : 'dashed'; } } },
        series: [{}, ...lines.map((l) => this.drawn(l, id === 'latency'))],
        cursor: { sync: { key: 'sale' }, drag: { x: false, y: false } },
        hooks: { draw: [(u) => this.drawMarks(u)] },
      }, this.data(lines), box);
      return Object.assign(plot, { lines });
    });
    this.say();
  }

  drawMarks(u) {
    const { ctx, bbox } = u, start = this.start();
    ctx.save();
    ctx.strokeStyle = color('ink');
    ctx.fillStyle = color('ink');
    ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = 'left';
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    let before = -Infinity, row = 0; // numbers that are close stand below each other
    this.state.marks.forEach((m, i) => {
      const x = Math.round(u.valToPos((m.at - start) / 1000, 'x', true));
      if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
      row = x - before < 14 * devicePixelRatio ? (row + 1) % 3 : 0;
      before = x;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(String(i + 1), x + 3 * devicePixelRatio, bbox.top + (10 + 12 * row) * devicePixelRatio);
    });
    ctx.restore();
  }

  // changed draws once a frame at most.
  changed() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      for (const p of this.plots) p.setData(this.data(p.lines));
      this.say();
    });
  }

  resize() {
    for (const p of this.plots) {
      const width = p.root.parentElement.clientWidth;
      if (width > 0 && width !== p.width) p.setSize({ width, height: p.height });
    }
  }

  // say puts the last values into words, for those who do not see the picture.
  say() {
    this.plots.forEach((p) => {
      const at = p.data[0].length - 1;
      const parts = p.series.slice(1).map((s, k) => `${s.label} ${p.data[k + 1][at] ?? '–'}`);
      const says = document.getElementById(`${p.root.parentElement.id}-says`);
      if (says) says.textContent = parts.join(', ');
    });
  }
}
