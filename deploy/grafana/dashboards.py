"""What three of the dashboards show: names, words and queries."""

from deploy.grafana.panels import (dashboard, heatmap, instant, lines, query,
                                   row, stat, states, variable)

# Jobs of one name in two namespaces are two jobs. Where series have no such label
# Grafana offers an empty namespace, which PromQL takes to be none.
_JOB = 'namespace="$namespace",job="$job"'
# Series of the coordinator alone, so no shard is chosen.
J = f"{{{_JOB}}}"
APPLIED = f'{{{_JOB},outcome="applied"}}'
MODEL = f'{{{_JOB},tensor=""}}'
TENSOR = f'{{{_JOB},tensor=~"$tensor"}}'
WORKER = f'{{{_JOB},worker=~"$worker"}}'
SHARD = f'{{{_JOB},shard=~"$shard"}}'
EARLY = f'{{{_JOB},shard=~"$shard",when="early"}}'
# What joins two series of one job.
ON = "on (namespace, job)"
P = f"aggserver_round_rows{J}"
RATE = "[$__rate_interval]"
BY_WORKER = "{{worker}}"
BY_SHARD = "shard {{shard}}"

NAMESPACE_VARIABLE = variable("namespace", "aggserver_build_info", "namespace",
                              "Namespace")
JOB_VARIABLE = variable("job", 'aggserver_build_info{namespace="$namespace"}',
                        "job", "Job")
SHARD_VARIABLE = variable("shard", f"aggserver_build_info{J}", "shard",
                          "Shard", every=".*")
TENSOR_VARIABLE = variable("tensor", f"aggserver_orthogonality{J}", "tensor",
                           "Tensor", every=".+")
WORKER_VARIABLE = variable("worker", f"aggserver_worker_waited_for_seconds{J}",
                           "worker", "Worker", every=".*")


def _in_effect():
    return stat(
        "In effect", "Rule, scope and step scale of the job.",
        [instant(f"aggserver_combination_info{J}",
                 "{{rule}}, {{scope}}, step scale {{step_scale}}")],
        name=True, width=8)


def geometry():
    panels = [
        _in_effect(),
        stat("Orthogonality",
             "||Adasum(g)||² / Σ||g||², of the complete model: 1 is "
             "orthogonal, 1/P parallel and of one length.",
             [instant(f"aggserver_orthogonality{MODEL}", "model")],
             decimals=3, width=4),
        stat("Effective rank", "Independent directions among the gradients.",
             [instant(f"aggserver_effective_rank{J}", "")], decimals=2),
        stat("Gradients", "P, of the last applied round.",
             [instant(P, "")]),
        stat("Loss", "That workers sent, mean by examples.",
             [instant(f"aggserver_loss{J}", "")], decimals=4),
        row("Orthogonality"),
        heatmap("Orthogonality per tensor",
                "The figure of the Adasum paper: gradients begin parallel and "
                "become orthogonal, each layer in its own time.",
                [query(f"aggserver_orthogonality{TENSOR}", "{{tensor}}")],
                0, 1, width=24, height=10),
        lines("Orthogonality of the model",
              "Between 1/P (parallel: more workers repeat each other) and 1 "
              "(orthogonal: each adds something). Below 1/P they undo each "
              "other.",
              [query(f"aggserver_orthogonality{MODEL}", "model"),
               query(f"1 / {P}", "1/P")], unit="percentunit"),
        lines("Orthogonality per tensor, as lines", "The heatmap's values.",
              [query(f"aggserver_orthogonality{TENSOR}", "{{tensor}}")],
              unit="percentunit"),
        row("Between workers"),
        lines("Pairwise cosines",
              "Between two workers' gradients, over all pairs. A minimum near "
              "-1: two workers undo each other.",
              [query(f"aggserver_pairwise_cosine_mean{J}", "mean"),
               query(f"aggserver_pairwise_cosine_min{J}", "minimum")]),
        lines("Independent directions",
              "Effective rank, 1 (all the same) to P (all independent), and "
              "gradient diversity.",
              [query(f"aggserver_effective_rank{J}", "effective rank"),
               query(P, "P"),
               query(f"aggserver_gradient_diversity{J}", "diversity")]),
        lines("Mean cosine to the others",
              "Negative for one worker: wrong labels, or a wrong sign.",
              [query(f"aggserver_worker_cosine_mean{WORKER}", BY_WORKER)]),
        lines("Outlier score",
              "Of a gradient's norm: |log norm - median| / (1.4826 MAD). One "
              "worker above 5, round after round: other data, or a bug.",
              [query(f"aggserver_worker_outlier_score{WORKER}", BY_WORKER)]),
        lines("Gradient norms",
              "Of each worker, loss scale removed, and of the combination.",
              [query(f"aggserver_worker_gradient_norm{WORKER}", BY_WORKER),
               query(f"aggserver_gradient_norm{J}", "combined")]),
        row("Combination"),
        lines("Coefficients",
              "Weights of the applied rule (mean over tensors).",
              [query(f"aggserver_worker_coefficient{WORKER}", BY_WORKER)]),
        lines("AdaCons coefficients",
              "Of the applied rule or a shadow rule with global scope.",
              [query(f"aggserver_adacons_coefficient{WORKER}", BY_WORKER)]),
        lines("Sum of coefficients, clipping",
              "1: a mean, P: a sum; Adasum lies between.",
              [query(f"aggserver_summed_coefficient{J}", "sum"),
               query(f"aggserver_clip_factor{J}", "clip factor")]),
        lines("Cancellation (kappa)",
              "Above 1e10 coefficients come from the compensated Gram.",
              [query(f"aggserver_adasum_kappa{TENSOR}", "{{tensor}}"),
               query(f"aggserver_adasum_kappa{MODEL}", "largest")], log=True),
        row("Shadow rules"),
        lines("Cosine to the applied result",
              "What each shadow rule would have done. Near 1: switching would "
              "change the step's length alone.",
              [query(f"aggserver_shadow_cosine{J}", "{{rule}}, {{scope}}")]),
        lines("Length against the applied result",
              "Norm of the shadow's result over that of the combination.",
              [query(f"aggserver_shadow_norm{J} / {ON} group_left () "
                     f"aggserver_gradient_norm{J}", "{{rule}}, {{scope}}")]),
    ]
    return dashboard(
        "agg-geometry", "agg_server: gradient geometry",
        "What workers' gradients look like to each other.",
        [NAMESPACE_VARIABLE, JOB_VARIABLE, TENSOR_VARIABLE, WORKER_VARIABLE], panels)


def adascale():
    useful = [(None, "red"), (0.2, "orange"), (0.5, "green")]
    batch = (f"rate(aggserver_examples_total{J}{RATE}) / {ON} "
             f"rate(aggserver_rounds_total{APPLIED}{RATE})")
    panels = [
        _in_effect(),
        stat("Gain", "AdaScale's: one-worker steps that a round is worth.",
             [instant(f"aggserver_gain_ratio{J}", "")], decimals=2),
        stat("Useful workers", "With so many a round is worth half of what "
             "any number could make it.",
             [instant(f"aggserver_useful_workers{J}", "")], decimals=1),
        stat("Efficiency", "Gain over P: 1 is no waste.",
             [instant(f"aggserver_gain_ratio{J} / {P}", "")],
             unit="percentunit", steps=useful),
        stat("Tau", "One-worker iterations so far.",
             [instant(f"aggserver_scale_invariant_iterations_total{J}", "")],
             decimals=1),
        row("Gain"),
        lines("Gain",
              "One-worker steps that a round is worth: 1 (the workers repeat "
              "each other) to P (each is useful).",
              [query(f"aggserver_gain_ratio{J}", "gain"), query(P, "P"),
               query(f"aggserver_next_gain_ratio{J}",
                     "of the next round (averaging: lagged)")]),
        lines("Gain of groups",
              "With gain_scope per_group, by tensor. Far apart: one gain would "
              "be too long a step for some and too short for others.",
              [query(f"aggserver_group_gain_ratio{MODEL}", "least of all"),
               query(f"aggserver_group_gain_ratio{TENSOR}", "{{tensor}}")]),
        lines("Efficiency", "Gain over P.",
              [query(f"aggserver_gain_ratio{J} / {P}", "efficiency")],
              unit="percentunit", min=0),
        lines("Tau", "Progress in one-worker iterations.",
              [query(f"aggserver_scale_invariant_iterations_total{J}",
                     "tau")]),
        lines("Speed",
              "One-worker iterations and rounds in a second: more workers "
              "should raise the first more than they lower the second.",
              [query("rate(aggserver_scale_invariant_iterations_total"
                     f"{J}{RATE})", "tau"),
               query("sum by (namespace, job) (rate(aggserver_rounds_total"
                     f"{J}{RATE}))", "rounds")]),
        row("Step"),
        lines("Learning rate", "Applied, and of the schedule.",
              [query(f"aggserver_learning_rate{J}", "applied"),
               query(f"aggserver_scheduled_learning_rate{J}", "scheduled")]),
        lines("Step factor", "What the step scale multiplied by.",
              [query(f"aggserver_step_factor{J}", "factor")]),
        lines("Loss", "That workers sent, mean by examples.",
              [query(f"aggserver_loss{J}", "loss")]),
        lines("Throughput", "Examples that entered applied rounds.",
              [query(f"rate(aggserver_examples_total{J}{RATE})", "examples")],
              unit="cps"),
        row("Noise"),
        lines("Noise scale against the batch",
              "Examples. A batch far above the noise scale is wasted.",
              [query(f"aggserver_gradient_noise_scale{J}", "noise scale"),
               query(batch, "batch of a round")], log=True),
        lines("Useful workers against P",
              "The same in workers. Below P: fewer do almost as much.",
              [query(f"aggserver_useful_workers{J}", "useful"),
               query(P, "P")], log=True),
        lines("Variance of a one-worker gradient", "sigma².",
              [query(f"aggserver_sigma2{J}", "this round"),
               query(f"aggserver_sigma2_average{J}", "average")], log=True),
        lines("Squared norm of the true gradient",
              "mu². A round's may be negative: it is an unbiased estimate.",
              [query(f"aggserver_mu2{J}", "this round"),
               query(f"aggserver_mu2_average{J}", "average")]),
    ]
    return dashboard("agg-adascale", "agg_server: AdaScale",
                     "How many workers are useful, and what that does to the "
                     "step.",
                     [NAMESPACE_VARIABLE, JOB_VARIABLE, TENSOR_VARIABLE], panels)


def rounds():
    phase = "aggserver_round_duration_seconds"
    quantiles = [query(f"histogram_quantile({q}, sum by (le) (rate("
                       f"aggserver_round_seconds_bucket{J}{RATE})))", name)
                 for q, name in ((0.5, "median"), (0.9, "90%"), (0.99, "99%"))]
    bad = [(None, "green"), (1, "red")]
    panels = [
        stat("Phase", "Of the job.",
             [instant(f"aggserver_job_phase{J} == 1", "{{phase}}")],
             name=True),
        stat("Version", "Published parameters.",
             [instant(f"aggserver_job_version{J}", "")]),
        stat("Waited for", "Workers that hold the open round.",
             [instant(f"aggserver_workers_waited_for{J}", "")]),
        stat("Since", "How long the open round has waited.",
             [instant(f"aggserver_longest_wait_seconds{J}", "")], unit="s"),
        stat("Last round", "Age of the last round that ended.",
             [instant(f"time() - aggserver_last_round_timestamp_seconds{J}",
                      "")], unit="s", decimals=1),
        stat("Not finite", "Gradients left out since the coordinator began.",
             [instant(f"aggserver_excluded_rows_total{J}", "")], steps=bad),
        row("Rounds"),
        lines("Rounds in a second", "By outcome; skipped: no gradient was "
              "finite, the parameters stayed.",
              [query(f"rate(aggserver_rounds_total{J}{RATE})", "{{outcome}}")],
              unit="short"),
        lines("Time of a round", "All phases.", quantiles, unit="s"),
        lines("Time by phase",
              "Mean per round. wait is workers, the rest servers.",
              [query(f"rate({phase}_sum{J}{RATE}) / {ON} group_left () "
                     f"rate(aggserver_round_seconds_count{J}{RATE})",
                     "{{phase}}")], unit="s", stack=True),
        lines("Fallbacks and exclusions in a second",
              "compensated_gram: kappa above its limit; adacons_mean: the "
              "guard chose the mean; few_rows: too few for Krum; "
              "external_rule: its process gave no weights.",
              [query(f"rate(aggserver_fallbacks_total{J}{RATE})", "{{kind}}"),
               query(f"rate(aggserver_excluded_rows_total{J}{RATE})",
                     "excluded gradients"),
               query(f"rate(aggserver_outlier_rows_total{J}{RATE})", "outliers"),
               query(f"rate(aggserver_workers_ended_total{J}{RATE})", "workers: {{reason}}"),
               query(f"aggserver_consecutive_skipped_rounds{J}", "skipped in a row"),
               query(f"aggserver_not_finite_rounds{J}",
                     "rounds with parameters that are not finite"),
               query(f"rate(aggserver_narrowed_values_total{J}{RATE})",
                     "pulled values that become {{becomes}}"),
               query(f"aggserver_differing_ranks{J}",
                     "workers with other parameters")]),
        lines("Answers of external rules in a second",
              "Missing or late again and again: its function fails, or is "
              "slower than external.timeout_seconds.",
              [query(f"rate(aggserver_rule_answers_total{J}{RATE})",
                     "{{name}}: {{answer}}")]),
        states("Processes of external rules",
               "no: rounds have the rule's fallback.",
               [query(f"aggserver_rule_process_connected{J}", "{{name}}")],
               {0: ("no", "red"), 1: ("yes", "green")}),
        row("Workers"),
        lines("Workers", "Joined above attending: a dead process. Joined below "
              "the floor: the job follows its floor_policy.",
              [query(f"aggserver_workers_{name}{J}", name)
               for name in ("expected", "joined", "attending", "committed",
                            "missing", "floor")] + [query(P, "in the last round")]),
        lines("Who is waited for", "And how long, in the open round.",
              [query(f"aggserver_worker_waited_for_seconds{WORKER}",
                     BY_WORKER),
               query(f"aggserver_below_floor_seconds{J}",
                     "more workers (below the floor)")],
              unit="s", points=True),
        lines("Stragglers",
              "Mean time of a commit after the first one of its round.",
              [query(f"rate(aggserver_worker_delay_seconds_total{WORKER}"
                     f"{RATE}) / {ON} group_left () "
                     f"rate(aggserver_round_seconds_count{J}{RATE})",
                     BY_WORKER)], unit="s"),
        lines("Late as a habit", "Gradients dropped, and rounds they came last.",
              [query(f"aggserver_worker_late_rows_total{WORKER}", BY_WORKER),
               query(f"aggserver_worker_last_rows_total{WORKER}",
                     BY_WORKER + " last")]),
        lines("How late as a rule", "Median after the first commit; the limit.",
              [query(f"aggserver_worker_lateness_seconds{WORKER}", BY_WORKER),
               query(f"aggserver_round_timeout_seconds{J}", "limit; 0: none")],
              unit="s"),
        lines("Gradients that were not finite, or outliers",
              "One worker: its data or its device. All: the learning rate.",
              [query(f"aggserver_worker_excluded_rows_total{WORKER}",
                     BY_WORKER + " not finite"),
               query(f"aggserver_worker_outlier_rows_total{WORKER}",
                     BY_WORKER + " outlier")]),
        row("Job"),
        states("Phase of the job",
               "shard_lost: a shard is lost, and the job waits for it.",
               [query(f"aggserver_job_phase{J}", "{{phase}}"),
                query(f"aggserver_job_failed{J}", "failed")],
               {0: ("no", "transparent"), 1: ("yes", "blue")}),
        lines("Open round and version", "",
              [query(f"aggserver_round{J}", "round"),
               query(f"aggserver_job_version{J}", "version")]),
    ]
    return dashboard("agg-rounds", "agg_server: rounds and stragglers",
                     "What rounds wait for, and who.",
                     [NAMESPACE_VARIABLE, JOB_VARIABLE, WORKER_VARIABLE], panels)


DASHBOARDS = {
    "gradient_geometry.json": geometry,
    "adascale.json": adascale,
    "rounds.json": rounds,
}
