
'use strict';
// Pictures on canvases. Colors come from the style sheet, so that they follow
// the light or dark theme.
const charts = (() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const isNumber = (x) => typeof x === 'number' && isFinite(x);

  function format(x) {
    if (!isNumber(x)) return '–';
    const a = Math.abs(x);
    if (a !== 0 && (a < 1e-3 || a >= 1e6)) return x.toExponential(2);
    return String(Number(x.toPrecision(4)));
  }

  // The canvas' context in CSS pixels, cleared.
  function begin(canvas, height) {
    const scale = window.devicePixelRatio || 1;
    if (height) canvas.style.height = height + 'px';
    const width = canvas.clientWidth || 300;
    height = height || canvas.clientHeight || 200;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    return {context, width, height};
  }

  function label(canvas, text) {
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', text);
  }

  // About n round numbers that cover [low, high].
  function ticks(low, high, n) {
    const raw = (high - low) / n;
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const result = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) result.push(i * step);
    return result;
  }

  // Single rounds are noise: from here on they are faint, and their running
  // mean is on top.
  const kSmoothFrom = 100;

  // Mean over the `reach` values on either side that are there.
  function smooth(values, reach) {
    const sums = [0], counts = [0];
    values.forEach((v, i) => {
      sums.push(sums[i] + (isNumber(v) ? v : 0));
      counts.push(counts[i] + (isNumber(v) ? 1 : 0));
    });
    return values.map((v, i) => {
      const a = Math.max(0, i - reach), b = Math.min(values.length, i + reach + 1), n = counts[b] - counts[a];
      return isNumber(v) && n ? (sums[b] - sums[a]) / n : null;
    });
  }

  function extent(values, options) {
    let low = Infinity, high = -Infinity;
    for (const v of values) if (isNumber(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    if (low > high) return null;
    if (isNumber(options.low)) low = Math.min(low, options.low);
    if (isNumber(options.high)) high = Math.max(high, options.high);
    if (high - low < 1e-12 * Math.max(1, Math.abs(high))) { const pad = Math.abs(high) * 0.1 || 1; low -= pad; high += pad; }
    return [low, high];
  }

  // Lines over rounds: series = [{name, color, values}], one value per entry of
  // `rounds`; null leaves a gap.
  function lines(canvas, rounds, series, options) {
    const {context, width, height} = begin(canvas);
    const count = series.reduce((n, s) => n + s.values.filter(isNumber).length, 0);
    canvas.dataset.points = count;
    const range = extent([].concat(...series.map((s) => s.values)), options || {});
    if (!range) {
      context.fillStyle = color('soft');
      context.fillText('no values yet', 8, height / 2);
      label(canvas, 'no values yet');
      return;
    }
    const left = 52, right = width - 8, top = series.length > 1 ? 20 : 8, bottom = height - 20;
    const x = (i) => left + (right - left) * (rounds.length < 2 ? 0.5 : i / (rounds.length - 1));
    const y = (v) => bottom - (bottom - top) * (v - range[0]) / (range[1] - range[0]);
    context.lineWidth = 1;
    for (const tick of ticks(range[0], range[1], 4)) {
      context.strokeStyle = color('line');
      context.beginPath(); context.moveTo(left, y(tick)); context.lineTo(right, y(tick)); context.stroke();
      context.fillStyle = color('soft'); context.textAlign = 'right'; context.textBaseline = 'middle';
      context.fillText(format(tick), left - 6, y(tick));
    }
    context.textBaseline = 'alphabetic';
    context.textAlign = 'left'; context.fillText('round ' + rounds[0], left, height - 5);
    context.textAlign = 'right'; context.fillText(String(rounds[rounds.length - 1]), right, height - 5);
    let legend = left;
    const draw = (values, strength, thickness) => {
      context.globalAlpha = strength;
      context.lineWidth = thickness;
      context.lineJoin = 'round';
      context.beginPath();
      let open = false;
      values.forEach((v, i) => {
        if (!isNumber(v)) { open = false; return; }
        if (open) context.lineTo(x(i), y(v)); else context.moveTo(x(i), y(v));
        open = true;
        const alone = !isNumber(values[i - 1]) && !isNumber(values[i + 1]);
        if (alone) context.fillRect(x(i) - 1.5, y(v) - 1.5, 3, 3);
      });
      context.stroke();
      context.globalAlpha = 1;
    };
    for (const one of series) {
      context.strokeStyle = context.fillStyle = color(one.color);
      if (one.values.length > kSmoothFrom) {
        draw(one.values, 0.3, 1);
        draw(smooth(one.values, Math.round(one.values.length / 40)), 1, 2);
      } else {
        draw(one.values, 1, 1.5);
      }
      if (series.length > 1) {
        context.textAlign = 'left';
        context.fillRect(legend, 7, 12, 3);
        context.fillText(one.name, legend + 16, 12);
        legend += 28 + context.measureText(one.name).width;
      }
    }
    label(canvas, series.map((s) => s.name + ' ' + format(s.values[s.values.length - 1])).join(', '));
  }

  function mix(a, b, t) {
    return 'rgb(' + a.map((v, i) => Math.round(v + (b[i] - v) * t)).join(',') + ')';
  }
  function parse(hex) {
    return [1, 3, 5].map((i) => parseInt(hex.substr(i, 2), 16));
  }
  // -1: orange, 0: the theme's neutral, 1: blue.
  function diverging() {
    const mid = parse(color('mid')), minus = [201, 92, 20], plus = [24, 98, 214];
    return (v) => mix(mid, v < 0 ? minus : plus, Math.min(1, Math.abs(v)));
  }
  // 0: dark violet to 1: yellow (points of the viridis map).
  function sequential(v) {
    const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
    const t = Math.max(0, Math.min(1, v)) * (stops.length - 1);
    const i = Math.min(stops.length - 2, Math.floor(t));
    return mix(stops[i], stops[i + 1], t - i);
  }

  function scaleBar(context, x, y, width, low, high, paint) {
    for (let i = 0; i < width; ++i) {
      context.fillStyle = paint(low + (high - low) * i / (width - 1));
      context.fillRect(x + i, y, 1.5, 8);
    }
    context.fillStyle = color('soft');
    context.textBaseline = 'alphabetic';
    context.textAlign = 'left'; context.fillText(format(low), x, y + 20);
    context.textAlign = 'right'; context.fillText(format(high), x + width, y + 20);
  }

  // A matrix of cells[row][column]; names of rows, a few of the columns.
  function heatmap(canvas, cells, rowNames, columnNames, options) {
    const rows = cells.length, columns = rows ? cells[0].length : 0;
    canvas.dataset.cells = cells.reduce((n, r) => n + r.filter(isNumber).length, 0);
    const rowHeight = options.square ? Math.max(4, Math.min(26, 260 / Math.max(1, rows))) : Math.max(10, Math.min(22, 240 / Math.max(1, rows)));
    const {context, width, height} = begin(canvas, Math.max(120, rows * rowHeight + 56));
    if (!rows || !columns) {
      context.fillStyle = color('soft');
      context.fillText('no values yet', 8, height / 2);
      label(canvas, 'no values yet');
      return;
    }
    const left = options.square ? 40 : Math.min(170, width * 0.38);
    const cellWidth = options.square ? Math.min(rowHeight * 1.6, (width - left - 8) / columns) : (width - left - 8) / columns;
    const top = 4;
    const stride = Math.ceil(11 / rowHeight);
    cells.forEach((row, i) => {
      row.forEach((v, j) => {
        context.fillStyle = isNumber(v) ? options.paint(v) : color('line');
        context.fillRect(left + j * cellWidth, top + i * rowHeight, Math.ceil(cellWidth * 10) / 10 + 0.4, rowHeight - (rowHeight > 8 ? 1 : 0));
      });
      if (i % stride === 0) {
        context.fillStyle = color('text'); context.textAlign = 'right'; context.textBaseline = 'middle';
        let name = rowNames[i];
        while (name.length > 3 && context.measureText(name).width > left - 8) name = '…' + name.slice(2);
        context.fillText(name, left - 6, top + (i + 0.5) * rowHeight);
      }
    });
    const foot = top + rows * rowHeight + 13;
    context.fillStyle = color('soft'); context.textBaseline = 'alphabetic'; context.textAlign = 'center';
    const every = Math.max(1, Math.ceil(44 / cellWidth));
    columnNames.forEach((name, j) => { if (options.square ? (j % Math.ceil(18 / cellWidth) === 0) : j % every === 0 && j * cellWidth < width - left - 30) context.fillText(name, left + (j + 0.5) * cellWidth, foot); });
    scaleBar(context, left, foot + 8, Math.min(160, width - left - 8), options.low, options.high, options.paint);
    canvas.onpointermove = (event) => {
      const j = Math.floor((event.offsetX - left) / cellWidth), i = Math.floor((event.offsetY - top) / rowHeight);
      if (i >= 0 && i < rows && j >= 0 && j < columns) options.tell(i, j, format(cells[i][j]));
    };
    label(canvas, options.name + ', ' + rows + ' by ' + columns);
  }

  return {format, isNumber, lines, heatmap, diverging, sequential};
})();
