/* Compiled as C: the header must be C, and the structs as the library's. */
#include "tests/worker_client/c/agg_calls.h"

#include <string.h>

#include "worker_client/c/agg.h"

#define EXPECT(condition)                                                 \
  do {                                                                    \
    if (!(condition)) {                                                   \
      return agg_error()[0] != 0 ? agg_error() : "not true: " #condition; \
    }                                                                     \
  } while (0)

static const int64_t kShape[] = {2, 2};

static const char* CheckJob(agg_client* client) {
  agg_job job;
  agg_spec spec;
  job.size = sizeof(job);
  EXPECT(agg_get_job(client, &job) == AGG_OK);
  EXPECT(job.num_tensors == 2 && job.num_shards == 2);
  EXPECT(strcmp(job.rule, "mean") == 0);
  EXPECT(strcmp(job.optimizer, "sgd") == 0);
  EXPECT(strcmp(job.transports[1], "tcp") == 0);
  EXPECT(strchr(job.shards[1], ':') != NULL);
  EXPECT(job.push_dtype == AGG_F32);
  EXPECT(agg_get_spec(client, 0, &spec) == AGG_OK);
  EXPECT(strcmp(spec.name, "a") == 0 && spec.num_dimensions == 2);
  EXPECT(spec.shape[1] == 2 && spec.optional == 0);
  EXPECT(agg_get_spec(client, 2, &spec) == AGG_OUT_OF_RANGE);
  return NULL;
}

static const char* OneRound(agg_client* client) {
  float a[4] = {1, 2, 3, 4}, b[1] = {5};
  const float row_a[4] = {1, 1, 1, 1}, row_b[1] = {2};
  const agg_target parameters[] = {{a, 4}, {b, 1}};
  const agg_view row[] = {{row_a, 4, AGG_F32, 0}, {row_b, 1, AGG_F32, 0}};
  agg_push_info info;
  agg_outcome outcome;
  agg_state state;
  uint64_t version = 0;
  memset(&info, 0, sizeof(info));
  info.size = sizeof(info);
  info.has_loss = 1;
  info.loss = 0.5;
  outcome.size = sizeof(outcome);
  state.size = sizeof(state);
  EXPECT(agg_seed_or_pull(client, parameters, 2) == AGG_OK);
  EXPECT(agg_push_pull(client, row, 2, &info, parameters, 2, &outcome) ==
         AGG_OK);
  EXPECT(a[0] == 0 && a[3] == 3 && b[0] == 3);
  EXPECT(outcome.kind == AGG_APPLIED && outcome.included);
  EXPECT(outcome.version == 1 && outcome.loss == 0.5);
  EXPECT(outcome.num_ranks == 1 && outcome.ranks[0] == 0);
  EXPECT(outcome.num_excluded_ranks == 0 && outcome.message[0] == 0);
  EXPECT(strcmp(outcome.rule, "mean") == 0);
  EXPECT(agg_get_state(client, &state) == AGG_OK && state.version == 1);
  EXPECT(agg_push(client, row, 2) == AGG_OK);
  EXPECT(agg_commit(client, NULL, NULL) == AGG_OK);
  EXPECT(agg_latest_version(client, &version) == AGG_OK && version == 2);
  EXPECT(agg_pull(client, 2, parameters, 2, 1) == AGG_OK && a[3] == 2);
  EXPECT(agg_pull_latest(client, parameters, 2, 0, &version) == AGG_OK);
  EXPECT(agg_push(client, row, 1) == AGG_INVALID_ARGUMENT);
  return NULL;
}

const char* RunRounds(const char* coordinator) {
  const agg_spec specs[] = {{"a", NULL, kShape, 2, 0}, {"b", "", NULL, 0, 1}};
  const char* wrong;
  agg_client* client;
  agg_options options;
  agg_options_init(&options, sizeof(options));
  options.coordinator = coordinator;
  options.specs = specs;
  options.num_specs = 2;
  EXPECT(options.local_sockets == 1 && options.shared_memory == 1);
  EXPECT(options.error_feedback == -1);
  options.shared_memory = 0;
  options.error_feedback = 2;
  EXPECT(agg_new(&options) == NULL);
  EXPECT(strstr(agg_error(), "error_feedback is 2; allowed: -1") != NULL);
  options.error_feedback = 1;
  EXPECT(agg_abi_version() == AGG_ABI_VERSION);
  client = agg_new(&options);
  EXPECT(client != NULL);
  EXPECT(agg_connect(client) == AGG_OK);
  wrong = CheckJob(client);
  if (wrong == NULL) wrong = OneRound(client);
  if (wrong != NULL) return wrong;
  EXPECT(agg_connect(client) == AGG_FAILED_PRECONDITION);
  EXPECT(agg_leave(client) == AGG_OK);
  EXPECT(agg_push(client, NULL, 0) != AGG_OK);
  agg_free(client);
  return NULL;
}
