/* The C ABI of a process that decides an external rule of a job.
 *
 *   agg_rule* rule = agg_rule_new(&options, "external");
 *   agg_rule_round round = {sizeof(round)};
 *   for (;;) {
 *     int32_t code = agg_rule_next(rule, 0.5, &round);
 *     if (code == AGG_NOT_FOUND) continue;   none came: look for Ctrl-C
 *     if (code != AGG_OK || round.finished) break;
 *     ..
 *     agg_rule_answer(rule, decision, round.num_segments, round.num_rows, 1);
 *   }
 *   agg_rule_free(rule);
 *
 * worker_client/rule_server.h has the contract of each call. What differs here
 * is in agg.h, and: calls on one handle are made one at a time. Pointers of an
 * agg_rule_round are good until the next agg_rule_next or agg_rule_free.
 */
#ifndef AGG_WORKER_CLIENT_C_AGG_RULE_H_
#define AGG_WORKER_CLIENT_C_AGG_RULE_H_

#include <stddef.h>
#include <stdint.h>

#include "agg_types.h" /* beside this file, also where it is installed */

#ifdef __cplusplus
extern "C" {
#endif

/* A handle. */
typedef struct agg_rule agg_rule;

/* RuleServer::Create. Of the options coordinator, client_name, connect_timeout,
 * recovery_window, tls_* and token_file count. `name`: of the rule; NULL:
 * "external". NULL is returned if something is not allowed; agg_error() names
 * it. */
agg_rule* agg_rule_new(const agg_options* options, const char* name);
/* RuleServer::Next. AGG_NOT_FOUND: no round came within `timeout`. */
int32_t agg_rule_next(agg_rule* rule, double timeout, agg_rule_round* round);
/* RuleServer::Answer; weights and states are copied. `num_rows`: of the round,
 * and so many weights has each segment. */
int32_t agg_rule_answer(agg_rule* rule, const agg_rule_weights* segments,
                        size_t count, size_t num_rows, double step_scale);
/* RuleServer::Fail; NULL: it is not known why. */
int32_t agg_rule_fail(agg_rule* rule, const char* why);
/* NULL, and a handle of a forked child: does nothing. */
void agg_rule_free(agg_rule* rule);

#ifdef __cplusplus
}
#endif

#endif /* AGG_WORKER_CLIENT_C_AGG_RULE_H_ */
