/* The C ABI of an agg_server client: for every language that can call C.
 *
 *   agg_options options;
 *   agg_options_init(&options, sizeof(options));
 *   options.rank = 0;
 *   options.specs = specs;
 *   options.num_specs = 2;
 *   agg_client* client = agg_new(&options);
 *   if (client == NULL || agg_connect(client) != AGG_OK) puts(agg_error());
 *   agg_seed_or_pull(client, parameters, 2);
 *   agg_push_pull(client, gradient, 2, NULL, parameters, 2, &outcome);
 *   agg_free(client);
 *
 * worker_client/agg_client.h has the contract of each call. What differs here:
 *
 * - Calls return a code of agg_code; agg_error() has the message. No C++
 *   exception leaves a call, and nothing is called back: events are queued.
 * - Structs begin with `size`, which the caller sets to sizeof its struct: a
 *   library may know more fields than its caller, or fewer. Views and specs
 *   stand in arrays and have no such field: they are fixed.
 * - Lists of views are in the manifest's order, with one view for each tensor.
 *   Memory that they name is the caller's, and in use until the call returns.
 *   It may be a CUDA device's (worker_client/tensor_view.h), but for agg_copy.
 * - Pointers in structs that a call fills in are good until the same thread's
 *   next call, those of agg_job and agg_manifest until agg_free.
 * - After fork() each call in the child returns AGG_FORKED and does nothing;
 *   so does agg_connect of a new client, if the parent had connected one.
 * - What goes on while the caller computes is in agg_operation.h, a process
 *   that decides an external rule in agg_rule.h.
 * - Thread-safe, but for agg_free. Times are in seconds; INFINITY: no limit.
 */
#ifndef AGG_WORKER_CLIENT_C_AGG_H_
#define AGG_WORKER_CLIENT_C_AGG_H_

#include <stddef.h>
#include <stdint.h>

#include "agg_operation.h" /* IWYU pragma: export */
#include "agg_rule.h"      /* IWYU pragma: export */
#include "agg_types.h"     /* beside this file, also where it is installed */

#ifdef __cplusplus
extern "C" {
#endif

/* AGG_ABI_VERSION of the library. Another one than the header's: do not call
 * anything else. */
int32_t agg_abi_version(void);
/* AGG_ABI_MINOR of the library. Less than the header's: it lacks calls that the
 * header has; agg_types.h says which. (Libraries before 1 lack this one.) */
int32_t agg_abi_minor(void);
/* The release, "0.1.0". For ever. */
const char* agg_version(void);
/* Why this thread's last call failed; "" if it did not. Good until the thread's
 * next call. Never NULL. */
const char* agg_error(void);

/* 1: this process has a CUDA driver by now, so that tensors may be in a
 * device's memory; else 0. At once, and for any thread. */
int32_t agg_has_cuda(void);

/* The CRC32C (Castagnoli) of `count` pieces of the host's memory, one behind
 * the other; never 0, which in agg_push_info.parameters_digest says nothing (a
 * sum that is 0 gives 1). Needs no client. Any thread may call it. */
uint32_t agg_crc32c(const void* const* pieces, const size_t* sizes,
                    size_t count);

/* Sets all fields to their defaults. REQUIRES: room for `size` bytes. */
void agg_options_init(agg_options* options, size_t size);

/* A client that is not connected yet. Copies the options. NULL: an option is
 * not allowed; agg_error() names it. The caller frees it with agg_free. */
agg_client* agg_new(const agg_options* options);
/* Joins the job, for at most connect_timeout. Once; again if it failed. What it
 * waits for comes through agg_next_event on other threads. */
int32_t agg_connect(agg_client* client);
/* Ends the session, in bounded time. Calls that wait end with AGG_CANCELLED or
 * AGG_ABORTED. Does nothing before the connection is there. */
int32_t agg_leave(agg_client* client);
/* Leaves and frees. NULL, and a client of a forked child: does nothing.
 * REQUIRES: no other call of this client runs or follows. */
void agg_free(agg_client* client);

/* What an AggClient does: worker_client/agg_client.h. `outcome` and `info` may
 * be NULL. */
int32_t agg_seed(agg_client* client, const agg_view* parameters, size_t count,
                 agg_outcome* outcome);
int32_t agg_seed_file(agg_client* client, const char* npz_path,
                      agg_outcome* outcome);
int32_t agg_seed_or_pull(agg_client* client, const agg_target* parameters,
                         size_t count);
int32_t agg_push(agg_client* client, const agg_view* gradient, size_t count);
/* AggClient::RowViews: where to compute the gradient, in the manifest's order.
 * Fills in up to `capacity` pieces; *count: how many there are. They are pushed
 * by views with in_row. `pieces` may be NULL if capacity is 0. */
int32_t agg_row_pieces(agg_client* client, agg_piece* pieces, size_t capacity,
                       size_t* count);
int32_t agg_commit(agg_client* client, const agg_push_info* info,
                   agg_outcome* outcome);
int32_t agg_pull(agg_client* client, uint64_t version,
                 const agg_target* parameters, size_t count,
                 int32_t full_precision);
int32_t agg_pull_latest(agg_client* client, const agg_target* parameters,
                        size_t count, int32_t full_precision,
                        uint64_t* version);
int32_t agg_latest_version(agg_client* client, uint64_t* version);
int32_t agg_push_pull(agg_client* client, const agg_view* gradient,
                      size_t num_gradients, const agg_push_info* info,
                      const agg_target* parameters, size_t num_parameters,
                      agg_outcome* outcome);
int32_t agg_wait(agg_client* client, uint64_t version, agg_outcome* outcome);

/* At once, whatever other threads do. */
int32_t agg_get_state(agg_client* client, agg_state* state);
int32_t agg_get_job(agg_client* client, agg_job* job);
/* Tensor `index` of the job's manifest, agg_job.num_tensors in all.
 * AGG_OUT_OF_RANGE: there is none. */
int32_t agg_get_spec(agg_client* client, size_t index, agg_spec* spec);

/* The oldest event that nobody has taken; waits for one for up to `timeout`.
 * AGG_NOT_FOUND: none came. 256 are kept; agg_event.num_dropped counts older
 * ones that were lost. Also before and during agg_connect. */
int32_t agg_next_event(agg_client* client, double timeout, agg_event* event);

#ifdef __cplusplus
}
#endif

#endif /* AGG_WORKER_CLIENT_C_AGG_H_ */
