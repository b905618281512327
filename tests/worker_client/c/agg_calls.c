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

static const char* Connect(const char* coordinator, agg_client** client) {
  const agg_spec specs[] = {{"a", NULL, kShape, 2, 0}, {"b", "", NULL, 0, 1}};
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
  *client = agg_new(&options);
  EXPECT(*client != NULL);
  EXPECT(agg_connect(*client) == AGG_OK);
  return NULL;
}

const char* RunRounds(const char* coordinator) {
  agg_client* client;
  const char* wrong = Connect(coordinator, &client);
  EXPECT(agg_abi_version() == AGG_ABI_VERSION);
  EXPECT(agg_abi_minor() == AGG_ABI_MINOR);
  EXPECT(agg_has_cuda() == 0 || agg_has_cuda() == 1);
  if (wrong != NULL) return wrong;
  wrong = CheckJob(client);
  if (wrong == NULL) wrong = OneRound(client);
  if (wrong != NULL) return wrong;
  EXPECT(agg_connect(client) == AGG_FAILED_PRECONDITION);
  EXPECT(agg_leave(client) == AGG_OK);
  EXPECT(agg_push(client, NULL, 0) != AGG_OK);
  agg_free(client);
  return NULL;
}

/* The second tensor first, each from memory of its own. */
static const char* OneOverlappedRound(agg_client* client) {
  const uint64_t first = 0, second = 1, third = 2;
  float a[4] = {1, 2, 3, 4}, b[1] = {5};
  const float row_a[4] = {1, 1, 1, 1}, row_b[1] = {2};
  const agg_target parameters[] = {{a, 4}, {b, 1}};
  const agg_view view_a = {row_a, 4, AGG_F32, 0};
  const agg_view view_b = {row_b, 1, AGG_F32, 0};
  agg_operation *row = NULL, *round = NULL;
  agg_outcome outcome;
  outcome.size = sizeof(outcome);
  EXPECT(agg_seed_or_pull(client, parameters, 2) == AGG_OK);
  EXPECT(agg_start_push(client, &second, &view_b, 1, &row) == AGG_OK);
  EXPECT(agg_operation_done(row, 0) == 0);
  EXPECT(agg_start_push(client, &second, &view_b, 1, NULL) ==
         AGG_INVALID_ARGUMENT);
  EXPECT(agg_start_push(client, &third, &view_b, 1, NULL) ==
         AGG_INVALID_ARGUMENT);
  EXPECT(agg_start_push(client, &first, &view_a, 1, NULL) == AGG_OK);
  EXPECT(agg_start_round(client, NULL, NULL, 0, NULL, parameters, 2, &round) ==
         AGG_OK);
  EXPECT(agg_operation_await_tensor(round, "b", 60) == AGG_OK && b[0] == 3);
  EXPECT(agg_operation_end(round, &outcome) == AGG_OK);
  EXPECT(agg_operation_done(round, 0) == 1 && agg_operation_done(row, 0) == 1);
  EXPECT(outcome.version == 1 && outcome.included && outcome.num_ranks == 1);
  EXPECT(a[0] == 0 && a[3] == 3);
  EXPECT(agg_operation_end(row, NULL) == AGG_OK);
  EXPECT(agg_operation_end(row, &outcome) == AGG_INVALID_ARGUMENT);
  EXPECT(agg_operation_await_tensor(row, "b", 0) == AGG_FAILED_PRECONDITION);
  agg_operation_free(round);
  agg_operation_free(row);
  return NULL;
}

/* Half of a row of other values, which is dropped; then commit and pull. */
static const char* OneRoundAfterADroppedRow(agg_client* client) {
  const uint64_t first = 0;
  float a[4], b[1];
  const float dropped[4] = {9, 9, 9, 9};
  const float row_a[4] = {1, 1, 1, 1}, row_b[1] = {2};
  const agg_target parameters[] = {{a, 4}, {b, 1}};
  const agg_view half = {dropped, 4, AGG_F32, 0};
  const agg_view row[] = {{row_a, 4, AGG_F32, 0}, {row_b, 1, AGG_F32, 0}};
  agg_operation *first_row = NULL, *commit = NULL, *pull = NULL;
  agg_outcome outcome;
  outcome.size = sizeof(outcome);
  EXPECT(agg_start_push(client, &first, &half, 1, &first_row) == AGG_OK);
  EXPECT(agg_operation_cancel(first_row) == AGG_OK);
  EXPECT(agg_operation_done(first_row, 60) == 1);
  EXPECT(agg_operation_end(first_row, NULL) == AGG_CANCELLED);
  agg_operation_free(first_row);
  EXPECT(agg_start_push(client, NULL, row, 2, NULL) == AGG_OK);
  EXPECT(agg_start_commit(client, NULL, &commit) == AGG_OK);
  EXPECT(agg_operation_end(commit, &outcome) == AGG_OK);
  agg_operation_free(commit);
  EXPECT(outcome.version == 2);
  EXPECT(agg_start_pull(client, 2, parameters, 2, 1, &pull) == AGG_OK);
  EXPECT(agg_operation_end(pull, NULL) == AGG_OK);
  agg_operation_free(pull);
  EXPECT(a[0] == -1 && a[3] == 2 && b[0] == 1);
  return NULL;
}

const char* RunOperations(const char* coordinator) {
  agg_client* client;
  const char* wrong = Connect(coordinator, &client);
  if (wrong == NULL) wrong = OneOverlappedRound(client);
  if (wrong == NULL) wrong = OneRoundAfterADroppedRow(client);
  if (wrong != NULL) return wrong;
  EXPECT(agg_leave(client) == AGG_OK);
  agg_free(client);
  return NULL;
}
