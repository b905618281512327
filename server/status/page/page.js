
// The status page polls /status.json; a report has the same data embedded.
(() => {
  const embedded = JSON.parse(document.getElementById('data').textContent);
  const by = (id) => document.getElementById(id);
  const format = charts.format;
  const state = {instance: null, next: 0, rounds: [], data: null, polled: null, rates: null, failures: 0};
  const kMaxRounds = 512, kMaxColumns = 256;

  // Everything that the server says is set as text, never as markup.
  function element(tag, text, className) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  }
  function fill(parent, children) {
    parent.replaceChildren(...children);
  }
  function bytes(n) {
    if (!charts.isNumber(n)) return '–';
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let i = 0;
    while (Math.abs(n) >= 1024 && i < units.length - 1) { n /= 1024; ++i; }
    return (i ? n.toPrecision(3) : Math.round(n)) + ' ' + units[i];
  }
  function seconds(s) {
    if (!charts.isNumber(s)) return '–';
    if (s < 60) return s.toPrecision(3) + ' s';
    const m = Math.floor(s / 60);
    return m < 60 ? m + ' min ' + Math.floor(s % 60) + ' s' : Math.floor(m / 60) + ' h ' + (m % 60) + ' min';
  }
  function table(target, head, rows) {
    const headRow = element('tr');
    head.forEach((h) => headRow.append(element('th', h[0], h[1])));
    const lines = rows.map((row) => {
      const tr = element('tr');
      row.forEach((cell, i) => {
        const c = Array.isArray(cell) ? cell : [cell];
        const td = element('td', String(c[0]), [head.length ? head[i][1] : i ? 'text' : '', c[1]].filter(Boolean).join(' '));
        if (td.className.includes('text')) td.title = String(c[0]);
        tr.append(td);
      });
      return tr;
    });
    fill(target, head.length ? [headRow, ...lines] : lines);
  }
  function tiles(list) {
    fill(by('tiles'), list.map(([name, value, kind]) => {
      const tile = element('div', undefined, 'tile');
      tile.append(element('span', name), element('b', value, kind));
      return tile;
    }));
  }

  function showHead(data) {
    const server = data.server, job = data.job;
    document.title = server.job + ' – agg_server';
    by('title').textContent = (embedded ? 'Run of ' : '') + server.job + (server.ordinal ? ', shard ' + server.ordinal : '');
    const phase = by('phase');
    phase.textContent = job ? job.phase : data.shard ? (data.shard.attached ? 'attached' : 'not attached') : '';
    const bad = phase.textContent === 'shard_lost', calm = ['open', 'closing', 'finished', 'attached'].includes(phase.textContent);
    phase.className = 'badge ' + (bad ? 'bad' : calm ? 'good' : 'warn');
    const rule = job && job.rule ? job : server;
    // Of a run every rule that it had, not only its last one.
    const combined = data.combined ? [data.combined] : [rule.rule + ', ' + rule.scope, 'step scale ' + rule.step_scale];
    const parts = [...combined, server.workers + ' workers', server.shards.length + (server.shards.length === 1 ? ' shard' : ' shards')];
    if (data.shard) parts.push('epoch ' + data.shard.epoch);
    if (job && job.seeded) parts.push('version ' + job.version);
    if (!embedded && !server.identities) parts.push('no identities: whoever reaches the ports may do everything');
    if (server.insecure) parts.push('insecure: open beyond this host without TLS');
    parts.push('agg_server ' + server.version);
    by('subtitle').textContent = parts.join(' · ');
  }

  function showWaiting(data) {
    const box = by('waiting'), job = data.job, lines = [];
    if (job) {
      const late = job.workers.filter((w) => job.missing.includes(w.rank) && w.waited > 0.5);
      for (const w of late.sort((a, b) => b.waited - a.waited).slice(0, 8)) {
        lines.push('Round ' + job.round + ' has waited ' + seconds(w.waited) + ' for rank ' + w.rank + ' (' + w.client + ')' + (w.attending ? '' : ': its connection is gone'));
      }
      if (late.length > 8) lines.push('… and ' + (late.length - 8) + ' more');
      if (['unseeded', 'open'].includes(job.phase) && job.workers.length < data.server.workers) {
        lines.push((data.server.workers - job.workers.length) + ' of ' + data.server.workers + ' workers are not in');
      }
      if (job.below_floor > 0) lines.push('Fewer than min_workers since ' + seconds(job.below_floor));
      if (job.recovering) lines.push('Recovering: ' + job.recovering);
      if (job.checkpoint && job.checkpoint.error) lines.push('The last checkpoint failed: ' + job.checkpoint.error);
      if (job.message) lines.push(job.message);
    }
    box.hidden = !lines.length;
    fill(box, lines.map((l) => element('p', l)));
  }

  // As the last round has it; a skipped one has few, the last applied one all.
  function numberText(number, last, applied) {
    const value = (last && number.key in last ? last : applied)[number.key];
    if (number.key === 'gain' && applied.rows) return format(value) + ' of ' + applied.rows;
    return format(value) + (number.unit === 'examples' && charts.isNumber(value) ? ' ex.' : '');
  }

  // What the job would survive: nothing is shown of what is not configured.
  function survivalTiles(data) {
    const job = data.job, list = [];
    if (!job) return list;
    if (data.server.replicated) list.push(['copies of each part', job.replicated ? '2' : 'not 2', job.replicated ? '' : 'warn']);
    if (job.rewinds) list.push(['rewinds', String(job.rewinds), 'warn']);
    const c = job.checkpoint;
    if (!c) return list;
    const text = c.version === null ? 'none yet' : 'version ' + c.version + ', ' + seconds(c.age) + ' ago';
    list.push(['checkpoint', text + (c.writing ? ', writing' : ''), c.error ? 'warn' : '']);
    if (c.failed) list.push(['checkpoints failed', String(c.failed), 'warn']);
    return list;
  }

  function showTiles(data) {
    const o = data.outcomes, list = [], r = state.rates || {};
    const last = state.rounds.length ? state.rounds[state.rounds.length - 1] : null;
    const applied = [...state.rounds].reverse().find((p) => p.applied) || {};
    if (o) {
      if (!embedded) list.push(['rounds/s', format(r.rounds)]);
      list.push(['rounds applied', String(o.applied)], ['rounds skipped', String(o.skipped), o.skipped ? 'warn' : ''],
        ['gradients left out', String(o.excluded_rows), o.excluded_rows ? 'warn' : ''],
        ['fallbacks', String(o.compensated + o.adacons_fallbacks)]);
      for (const number of data.numbers) list.push([number.label, numberText(number, last, applied)]);
    }
    if (data.shard && !embedded) {
      list.push(['push', bytes(r.push) + '/s'], ['pull', bytes(r.pull) + '/s'],
        ['memory plan', bytes(data.shard.memory_planned_bytes) + (data.shard.memory_budget_bytes ? ' of ' + bytes(data.shard.memory_budget_bytes) : '')]);
    }
    list.push(...survivalTiles(data));
    if (data.round_log) list.push(['in the round log', String(data.round_log.records), data.round_log.errors ? 'warn' : '']);
    tiles(list);
  }

  function showCharts() {
    const points = state.rounds, rounds = points.map((p) => p.round);
    const pick = (f) => points.map((p) => { const v = f(p); return charts.isNumber(v) ? v : null; });
    const one = (id, name, f, options) => charts.lines(by(id), rounds, [{name, color: 'one', values: pick(f)}], options);
    one('chart-orthogonality', 'orthogonality', (p) => p.orthogonality, {low: 0, high: 1});
    one('chart-gain', 'gain', (p) => p.gain, {low: 1});
    one('chart-loss', 'loss', (p) => p.loss);
    one('chart-rate', 'learning rate', (p) => p.rate, {low: 0});
    charts.lines(by('chart-cosine'), rounds, [{name: 'mean', color: 'one', values: pick((p) => p.cosine)}, {name: 'least', color: 'two', values: pick((p) => p.least)}]);
    charts.lines(by('chart-seconds'), rounds, [{name: 'waiting', color: 'two', values: pick((p) => p.seconds[0])},
      {name: 'working', color: 'one', values: pick((p) => p.seconds.slice(1).reduce((a, b) => a + b, 0))}], {low: 0});
  }

  function showMatrices(data) {
    const last = data.last;
    const ranks = last ? last.ranks.slice(0, last.cosines.length) : [];
    if (last) by('matrix-round').textContent = 'round ' + last.round;
    charts.heatmap(by('matrix'), last ? last.cosines : [], ranks.map(String), ranks.map(String), {
      square: true, paint: charts.diverging(), low: -1, high: 1, name: 'cosine between ranks',
      tell: (i, j, v) => { by('matrix-hint').textContent = 'Ranks ' + ranks[i] + ' and ' + ranks[j] + ': ' + v; }});
    const points = state.rounds.filter((p) => p.applied && p.tensors.length === data.tensors.length);
    const group = Math.max(1, Math.ceil(points.length / kMaxColumns)), columns = [];
    for (let i = 0; i < points.length; i += group) columns.push(points.slice(i, i + group));
    const mean = (list) => { const n = list.filter(charts.isNumber); return n.length ? n.reduce((a, b) => a + b, 0) / n.length : null; };
    const cells = columns.length ? data.tensors.map((_, t) => columns.map((c) => mean(c.map((p) => p.tensors[t])))) : [];
    charts.heatmap(by('layers'), cells, data.tensors, columns.map((c) => String(c[0].round)), {
      paint: charts.sequential, low: 0, high: 1, name: 'orthogonality of tensors over rounds',
      tell: (i, j, v) => { by('layers-hint').textContent = data.tensors[i] + ', from round ' + columns[j][0].round + ': ' + v; }});
  }

  function showWorkers(data) {
    const last = data.last || {ranks: []}, job = data.job;
    const present = job ? [...job.workers] : [];
    for (const rank of last.ranks) if (!present.some((w) => w.rank === rank)) present.push({rank, client: '', left: true});
    const rows = present.sort((a, b) => a.rank - b.rank).slice(0, 512).map((w) => {
      const i = last.ranks.indexOf(w.rank), of = (list) => i < 0 ? '–' : format(list[i]);
      // The server's words, which aggctl has, too.
      const status = !job ? '' : w.left ? ['left', ''] : !w.attending ? [w.state + ', not connected', 'bad'] : [w.state, w.committed ? 'good' : ''];
      const excluded = last.excluded && last.excluded.includes(w.rank);
      const outlier = last.outlier_ranks && last.outlier_ranks.includes(w.rank);
      const incomplete = last.incomplete_ranks && last.incomplete_ranks.includes(w.rank);
      const why = incomplete ? 'incomplete' : 'not finite';
      const norm = outlier ? [of(last.norms) + (excluded ? ', left out' : ', outlier'), excluded ? 'bad' : 'warn'] : excluded ? [why, 'bad'] : of(last.norms);
      const base = [w.rank, of(last.coefficients), norm, of(last.means), of(last.outliers)];
      const times = (n) => w.left ? '–' : n;
      return job ? [...base, w.waited > 0 ? seconds(w.waited) : '', times(w.late), times(w.last), w.left ? '–' : seconds(w.lateness), status, w.transports || '–', w.client] : base;
    });
    const head = [['rank'], ['coefficient'], ['gradient norm'], ['mean cosine'], ['outlier score']];
    if (job) head.push(['waited for'], ['came too late'], ['came last'], ['usually after the first'], ['state', 'text'], ['transport', 'text'], ['client', 'text']);
    table(by('workers'), head, rows);
  }

  // What shard 0 knows of all of them; each has a page of its own with more.
  function showShards(data) {
    const job = data.job, addresses = data.server.shards;
    by('shards-section').hidden = !job;
    if (!job) return;
    const worked = data.last ? data.last.shard_seconds : [];
    table(by('shards'), [['shard'], ['address', 'text'], ['attached', 'text'], ['computing, last applied round']], addresses.map((address, i) => {
      const error = i < job.shard_errors.length ? job.shard_errors[i] : 'not reached yet';
      return [i, address, error ? ['no: ' + error, 'bad'] : ['yes', 'good'], seconds(worked[i])];
    }));
  }

  function showShard(data) {
    const s = data.shard;
    by('shard-section').hidden = !s;
    if (!s) return;
    table(by('shard'), [], [['shard', s.ordinal + ' of ' + data.server.shards.length + ', ' + (data.server.shards[s.ordinal] || '')],
      ['backend', s.backend], ['attached to the coordinator', s.attached ? 'yes' : ['no', 'bad']], ['epoch', s.epoch],
      ['version served', s.published ? s.version : 'none yet'], ['slices, parameters', s.slices + ', ' + s.elements],
      ['memory planned', bytes(s.memory_planned_bytes)], ['memory budget', s.memory_budget_bytes ? bytes(s.memory_budget_bytes) : 'unlimited'],
      ...(s.device_memory_total_bytes ? [['device memory planned', bytes(s.device_memory_planned_bytes)], ['device memory budget', bytes(s.device_memory_budget_bytes)],
        ['device memory in use', bytes(s.device_memory_used_bytes) + ' of ' + bytes(s.device_memory_total_bytes)]] : []),
      ['Grams early, at close', s.early_grams + ', ' + s.grams_at_close], ['backend errors', s.backend_errors ? [s.backend_errors, 'bad'] : 0],
      ['pushed', bytes(s.push_bytes)], ['pulled', bytes(s.pull_bytes)], ['duplicates dropped', bytes(s.duplicate_bytes)],
      ['checksum errors', s.crc_errors ? [s.crc_errors, 'bad'] : 0], ['snapshots revoked', s.revoked_snapshots],
      ['buffers not shared', s.shared_fallbacks ? [s.shared_fallbacks, 'warn'] : 0]]);
  }

  function showRun(data) {
    by('run-section').hidden = !data.run;
    if (!data.run) return;
    table(by('run'), [], data.run.map((pair) => [pair[0], pair[1]]));
    by('config').textContent = data.config;
  }

  function showLinks(data) {
    const links = [];
    const link = (text, href) => { const a = element('a', text); a.href = href; return a; };
    if (!embedded) links.push(link('metrics', 'metrics'), ...(data.job ? [link('trace (open in Perfetto)', 'trace.json')] : []));
    if (!embedded && data.server.ordinal !== 0) {
      const c = data.server.coordinator;
      let host = c.host;
      if (['localhost', '127.0.0.1', '::1'].includes(host)) host = location.hostname;
      if (host.includes(':') && !host.startsWith('[')) host = '[' + host + ']';
      links.push(c.port ? link('status of the job: shard 0', location.protocol + '//' + host + ':' + c.port + '/')
        : element('span', 'status of the job: on the metrics port of shard 0, ' + c.host));
    }
    fill(by('links'), links.flatMap((l, i) => i ? [' · ', l] : [l]));
  }

  function show() {
    const data = state.data;
    if (!data) return;
    showHead(data);
    const isJob = Boolean(data.outcomes);
    document.querySelectorAll('.job').forEach((e) => { e.hidden = !isJob; });
    showWaiting(data);
    showTiles(data);
    if (isJob) { showCharts(); showMatrices(data); showWorkers(data); }
    showShards(data);
    showShard(data);
    showRun(data);
    showLinks(data);
    document.body.dataset.rounds = state.rounds.length;
  }

  function take(data) {
    if (data.instance !== state.instance) Object.assign(state, {instance: data.instance, rounds: [], polled: null, rates: null});
    if (data.rounds) {
      // Gone from the server: another model's.
      if (state.tensors !== JSON.stringify(data.tensors)) state.rounds = [];
      state.tensors = JSON.stringify(data.tensors);
      const newest = state.rounds.length ? state.rounds[state.rounds.length - 1].seq : 0;
      state.rounds = state.rounds.concat(data.rounds.filter((p) => p.seq > newest));
      if (!embedded) state.rounds = state.rounds.slice(-kMaxRounds);
      state.next = data.next;
    }
    const now = performance.now() / 1000, total = data.outcomes ? data.outcomes.applied + data.outcomes.skipped : 0;
    if (data.shard) {
      const sample = {now, total, push: data.shard.push_bytes, pull: data.shard.pull_bytes};
      state.samples = (state.polled ? state.samples : []).concat(sample).slice(-10);
      const old = state.samples[0], dt = now - old.now;
      state.rates = dt > 0.5 ? {rounds: (total - old.total) / dt, push: (sample.push - old.push) / dt, pull: (sample.pull - old.pull) / dt} : null;
      state.polled = now;
    }
    state.data = data;
  }

  async function poll() {
    const abort = new AbortController(), timer = setTimeout(() => abort.abort(), 10000);
    try {
      const reply = await fetch('status.json?after=' + state.next, {cache: 'no-store', signal: abort.signal});
      if (!reply.ok) throw new Error('HTTP ' + reply.status);
      const data = await reply.json();
      if (state.instance !== null && data.instance !== state.instance) {
        // Another process: only a part of its history was asked for.
        state.instance = null;
        state.next = 0;
      } else {
        take(data);
      }
      state.failures = 0;
      by('connection').textContent = '';
      show();
    } catch (error) {
      ++state.failures;
      by('connection').textContent = 'No answer from the server: ' + error.message + '. Trying again.';
      by('connection').className = 'bad';
    } finally {
      clearTimeout(timer);
    }
    document.body.dataset.polls = Number(document.body.dataset.polls || 0) + 1;
    setTimeout(next, Math.min(30000, 1000 * Math.pow(2, Math.min(5, state.failures))));
  }
  // Nobody looks: nothing is asked until somebody does.
  function next() {
    if (document.visibilityState === 'hidden') document.addEventListener('visibilitychange', poll, {once: true});
    else poll();
  }

  window.addEventListener('resize', show);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  if (embedded) {
    take(embedded);
    show();
  } else {
    poll();
  }
})();
