/* Operations of the C ABI: what goes on while the caller computes.
 *
 *   agg_operation* row = NULL;
 *   for (each tensor, as soon as its gradient is ready)
 *     agg_start_push(client, &index, &view, 1, row == NULL ? &row : NULL);
 *   agg_operation* round = NULL;
 *   agg_start_round(client, NULL, NULL, 0, &info, targets, count, &round);
 *   while (!agg_operation_done(round, 0.2)) LookForCtrlC();
 *   agg_operation_end(round, &outcome);
 *   agg_operation_free(round);
 *   agg_operation_free(row);
 *
 * worker_client/agg_client.h has the contract of each agg_start_ call, and
 * worker_client/operation.h that of a handle. What differs here:
 *
 * - Some tensors of a row are named by their indices in the job's manifest,
 *   `tensors`, one for each view. NULL: the views are the whole row.
 * - An agg_start_ call returns AGG_OK and a handle, which the caller frees. Or
 *   the code of what is wrong already, and NULL for a handle: then the
 * operation does not begin, or has failed. `operation` may be NULL where nobody
 * wants a handle.
 * - Memory that it was given (info's is copied) is in use until
 *   agg_operation_done() returns 1, also after a cancel.
 * - Handles outlive their client, and are freed once each. agg_operation_free
 *   apart, calls on one handle are thread-safe. After fork() they return
 *   AGG_FORKED in the child (done: 1) and do nothing.
 */
#ifndef AGG_WORKER_CLIENT_C_AGG_OPERATION_H_
#define AGG_WORKER_CLIENT_C_AGG_OPERATION_H_

#include <stddef.h>
#include <stdint.h>

#include "agg_types.h" /* beside this file, also where it is installed */

#ifdef __cplusplus
extern "C" {
#endif

/* A handle. */
typedef struct agg_operation agg_operation;

int32_t agg_start_push(agg_client* client, const uint64_t* tensors,
                       const agg_view* gradient, size_t count,
                       agg_operation** operation);
int32_t agg_start_commit(agg_client* client, const agg_push_info* info,
                         agg_operation** operation);
int32_t agg_start_pull(agg_client* client, uint64_t version,
                       const agg_target* parameters, size_t count,
                       int32_t full_precision, agg_operation** operation);
/* Count 0: no tensors besides those that agg_start_push has given. */
int32_t agg_start_round(agg_client* client, const uint64_t* tensors,
                        const agg_view* gradient, size_t count,
                        const agg_push_info* info, const agg_target* parameters,
                        size_t num_parameters, agg_operation** operation);

/* AggClient::StartReduce; `what` and the values are copied. */
int32_t agg_start_reduce(agg_client* client, const char* what,
                         const double* values, size_t count,
                         agg_operation** operation);

/* Waits until it is done (1), for at most `timeout`; 0: it goes on. */
int32_t agg_operation_done(agg_operation* operation, double timeout);
/* Waits until it is done; how it ended. `outcome`, of a commit or a round, may
 * be NULL. */
int32_t agg_operation_end(agg_operation* operation, agg_outcome* outcome);
/* Waits until tensor `name` of a pull or a round has its values, for at most
 * `timeout`: PullOperation::WaitForTensor. */
int32_t agg_operation_await_tensor(agg_operation* operation, const char* name,
                                   double timeout);
/* Waits until it is done; how it ended. Of agg_start_reduce: fills in `count`
 * sums, as many as values were given, and whose they are: *ranks, and *left_out
 * (worker_client/client_types.h), which are good until agg_operation_free. */
int32_t agg_operation_sums(agg_operation* operation, double* sums, size_t count,
                           const int32_t** ranks, size_t* num_ranks,
                           const int32_t** left_out, size_t* num_left_out);
/* It ends soon, with AGG_CANCELLED unless it ends otherwise meanwhile. */
int32_t agg_operation_cancel(agg_operation* operation);
/* Lets go of the handle; the operation goes on. NULL: does nothing. */
void agg_operation_free(agg_operation* operation);

/* Of agg.h's own calls. */
/* Copies pulled tensors in the host's memory: to[i] = from[i]. For callers
 * whose own copy of many small ones takes long. AGG_INVALID_ARGUMENT, and
 * nothing is copied: sizes differ. */
int32_t agg_copy(const agg_target* from, const agg_target* to, size_t count);
/* From another thread: ends the agg_push_pull calls that run, with
 * AGG_CANCELLED. agg_resume_round goes on with the last one. What the servers
 * know by then they know: another agg_push_pull in its place is another
 * gradient of the round, or, if the round has ended with the first one, gets
 * its outcome. */
int32_t agg_interrupt(agg_client* client);
/* Goes on with the agg_push_pull that agg_interrupt has ended, on a thread of
 * the client, as if it had not ended: AggClient::ResumeRound, once, before the
 * next agg_push_pull. Its memory is in use again until the operation is done.
 * AGG_NOT_FOUND, and no handle: there is no such round. Else the operation says
 * how it ends. */
int32_t agg_resume_round(agg_client* client, agg_operation** operation);

#ifdef __cplusplus
}
#endif

#endif /* AGG_WORKER_CLIENT_C_AGG_OPERATION_H_ */
