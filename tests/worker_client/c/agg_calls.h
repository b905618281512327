/* A worker in C, for agg_test.cc. */
#ifndef AGG_TESTS_WORKER_CLIENT_C_AGG_CALLS_H_
#define AGG_TESTS_WORKER_CLIENT_C_AGG_CALLS_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Joins, seeds {1, 2, 3, 4} and {5}, pushes a row, pulls the result (FakeJob's:
 * parameters - row) and leaves. NULL, or what was not as it should be. */
const char* RunRounds(const char* coordinator);

/* The same with operations: tensors one by one, a row that is dropped, commit
 * and pull apart, a round that is cancelled. Leaves. */
const char* RunOperations(const char* coordinator);

#ifdef __cplusplus
}
#endif

#endif /* AGG_TESTS_WORKER_CLIENT_C_AGG_CALLS_H_ */
