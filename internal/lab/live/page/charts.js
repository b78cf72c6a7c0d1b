// The charts over time, with a line for each mark on all of them.

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class Charts {
  // The boxes of the charts have ids that begin with of; those that are missing are not drawn.
  constructor(state, t, of = 'chart') {
    Object.assign(this, { state, t, of, plots: [], due: false });
    new ResizeObserver(() => this.resize()).observe(document.getElementById(`${of}-stock`));
  }

  // start is when the sale began: the zero of all time axes.
  start() { return this.state.from ?? this.state.marks[0]?.at ?? this.state.points[0]?.at ?? 0; }

  series() {
    const { t } = this;
    // Where stock and answers are points apart, a line leads over the other ones; of a latency there are points alone.
    const apart = Boolean(this.state.apart);
    const line = (label, stroke, dash) => ({ label, stroke: color(stroke), width: 2, dash, points: { show: false }, spanGaps: apart });
    const dots = (label, stroke, dash) => ({ ...line(label, stroke, dash), spanGaps: false, points: { show: apart, size: 5 } });
    if (this.state.pair) return this.ofPair(line, dots);
    return [
      { id: 'stock', height: 220, series: [line(t('initial'), 'ink', [2, 4]), line(t('sold'), 'hold'), line(t('left'), 'warn', [7, 4]), { ...line(t('oversold'), 'alarm', [10, 3]), width: 2.5 }] },
      { id: 'answers', height: 170, series: [line(t('sold'), 'good'), line(t('rejected'), 'refused', [7, 4]), line(t('busy'), 'edge', [3, 3]), line(t('failed'), 'alarm'), line(t('unknown'), 'alarm', [2, 3])] },
      { id: 'latency', height: 170, series: [dots('p50', 'hold'), dots('p99', 'warn', [7, 4])] },
      { id: 'line', height: 170, series: [line(t('line.waiting'), 'hold'), line(t('line.admissions'), 'good', [7, 4]), line(t('line.left'), 'warn', [2, 4])] },
    ];
  }

  // ofPair are the lines of two recordings, a color for each.
  ofPair(line, dots) {
    const { t } = this, both = (make) => [['A', 'hold'], ['B', 'warn']].flatMap(([side, ink]) => make(`${side} `, ink));
    return [
      { id: 'stock', height: 220, series: both((side, ink) => [line(side + t('sold'), ink), line(side + t('left'), ink, [7, 4])]) },
      { id: 'answers', height: 170, series: both((side, ink) => [line(side + t('sold'), ink), line(side + t('rejected'), ink, [7, 4]), line(side + t('failed'), ink, [2, 3])]) },
      { id: 'latency', height: 170, series: both((side, ink) => [dots(`${side}p99`, ink)]) },
    ];
  }

  dataOfPair(i) {
    const { points } = this.state, start = this.start();
    const of = [
      [(p) => (p.seen ? p.sold : null), (p) => (p.seen ? p.stock : null)],
      ['sold', 'rejected', 'failed'].map((k) => (p) => (p.seconds > 0 ? Math.round(p.answers[k] / p.seconds) : null)),
      [(p) => p.p99 || null],
    ][i];
    return [points.map((p) => (p.at - start) / 1000), ...['A', 'B'].flatMap((side) => of.map((pick) => points.map((p) => (p.side === side ? pick(p) : null))))];
  }

  data(i) {
    if (this.state.pair) return this.dataOfPair(i);
    const { points, sale } = this.state, start = this.start();
    const x = points.map((p) => (p.at - start) / 1000);
    const seen = (pick) => points.map((p) => (p.seen ? pick(p) : null));
    const rate = (pick) => points.map((p) => (p.seconds > 0 ? Math.round(pick(p.answers) / p.seconds) : null));
    switch (i) {
      case 0: return [x, points.map(() => sale.settings?.stock || null), seen((p) => p.sold), seen((p) => p.stock), seen((p) => p.oversold)];
      case 1: return [x, ...['sold', 'rejected', 'busy', 'failed', 'unknown'].map((k) => rate((a) => a[k]))];
      case 3: return [x, ...['waiting', 'admissions', 'left'].map((k) => points.map((p) => p.line?.[k] ?? null))];
      default: return [x, points.map((p) => p.p50 || null), points.map((p) => p.p99 || null)];
    }
  }

  rebuild() {
    for (const p of this.plots) p.destroy();
    const axis = { stroke: color('soft'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    this.plots = this.series().flatMap((c, i) => {
      const box = document.getElementById(`${this.of}-${c.id}`);
      if (!box) return [];
      return new uPlot({
        width: Math.max(200, box.clientWidth), height: c.height,
        scales: { x: { time: false, range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(this.state.lasts ?? 5, high ?? 5)] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, high ?? 1) * 1.06] } },
        axes: [{ ...axis, size: 30, values: (_, v) => v.map((n) => `${n} s`) }, { ...axis, size: 56 }],
        legend: { live: false, markers: { width: 2, dash: (u, i) => { const d = u.series[i].dash; return !d ? 'solid' : d[0] < 4 ? 'dotted' : 'dashed'; } } },
        series: [{}, ...c.series.map((s) => ({ ...s, value: (_, v) => (v == null ? '' : String(Math.round(v * 100) / 100)) }))],
        cursor: { sync: { key: 'sale' }, drag: { x: false, y: false } },
        hooks: { draw: [(u) => this.drawMarks(u)] },
      }, this.data(i), box);
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
      this.plots.forEach((p, i) => p.setData(this.data(i)));
      this.say();
    });
  }

  marks() { this.changed(); }

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
