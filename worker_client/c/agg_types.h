/* The structs and numbers of agg.h, which explains them. */
#ifndef AGG_WORKER_CLIENT_C_AGG_TYPES_H_
#define AGG_WORKER_CLIENT_C_AGG_TYPES_H_

#include <stddef.h>
#include <stdint.h>

/* Another number: not compatible. Fields and calls may be added within one. */
#define AGG_ABI_VERSION 1
/* Counts calls that were added: 1, agg_operation.h and agg_abi_minor; 2,
 * agg_row_pieces, agg_view.in_row, agg_interrupt, agg_resume_round, agg_copy,
 * and of agg_options copy_threads, tls_* and token_file; 3, agg_has_cuda, and
 * of agg_options cuda_rows; 4, agg_crc32c, of agg_push_info parameters_digest,
 * and of agg_outcome absent_tensors and differing_ranks; 5, agg_start_reduce,
 * agg_operation_sums; 6, agg_rule.h. */
#define AGG_ABI_MINOR 6

/* One client: a worker or an observer. */
typedef struct agg_client agg_client;

/* gRPC's codes, and one of this ABI's own. */
enum agg_code {
  AGG_OK = 0,
  AGG_CANCELLED = 1,
  AGG_UNKNOWN = 2,
  AGG_INVALID_ARGUMENT = 3,
  AGG_DEADLINE_EXCEEDED = 4,
  AGG_NOT_FOUND = 5,
  AGG_ALREADY_EXISTS = 6,
  AGG_PERMISSION_DENIED = 7,
  AGG_RESOURCE_EXHAUSTED = 8,
  AGG_FAILED_PRECONDITION = 9,
  AGG_ABORTED = 10,
  AGG_OUT_OF_RANGE = 11,
  AGG_INTERNAL = 13,
  AGG_UNAVAILABLE = 14,
  AGG_DATA_LOSS = 15,
  AGG_UNAUTHENTICATED = 16,
  AGG_FORKED = 100 /* the client belongs to the parent of this process */
};

enum agg_dtype {
  AGG_F32 = 1,
  AGG_BF16 = 2,
  AGG_F16 = 3,
  AGG_I8 = 4 /* of agg_job.push_dtype alone: its rows are pushed as AGG_F32 */
};

enum agg_outcome_kind {
  AGG_APPLIED = 0,
  AGG_SKIPPED = 1, /* the version advanced, the parameters did not change */
  AGG_SEEDED = 2,
  AGG_REWOUND = 3 /* the job has gone back to `version` */
};

/* ClientEvent::Kind, worker_client/client_event.h. */
enum agg_event_kind {
  AGG_EVENT_SHARD_LOST = 0,
  AGG_EVENT_FINISHED = 1,
  AGG_EVENT_SUPERSEDED = 2,
  AGG_EVENT_SEED_ROLE = 3,
  AGG_EVENT_DRAINING = 4,
  AGG_EVENT_EXPIRED = 5,
  AGG_EVENT_EVICTED = 6,
  AGG_EVENT_WAITING = 7,
  AGG_EVENT_RECOVERING = 8,
  AGG_EVENT_RECOVERED = 9,
  AGG_EVENT_REWOUND = 10,
  AGG_EVENT_AUDIT_LOG = 11,
  AGG_EVENT_WORKER_LOST = 12,
  AGG_EVENT_LEFT_OUT = 13
};

/* A tensor of the manifest. */
typedef struct agg_spec {
  const char* name;     /* UTF-8 */
  const char* group;    /* of hyperparameters; NULL or "": the default one */
  const int64_t* shape; /* num_dimensions of them; NULL for a scalar */
  int32_t num_dimensions;
  int32_t optional; /* 1: may be missing from a push, then counts as zero */
} agg_spec;

/* A tensor that is read: contiguous, row-major. Its memory may be a CUDA
 * device's, where agg_has_cuda. */
typedef struct agg_view {
  const void* data; /* NULL: not in this push, for optional tensors */
  int64_t num_elements;
  int32_t dtype; /* AGG_F32, or the job's push_dtype */
  /* 1: the tensor lies where agg_row_pieces has last said, all of it; data,
   * num_elements and dtype are those of its pieces. Else 0. */
  int32_t in_row;
} agg_view;

/* Elements of a tensor of this worker's row, in a shard's memory. */
typedef struct agg_piece {
  void* data;
  int64_t begin; /* the tensor's element at `data` */
  int64_t num_elements;
  uint64_t tensor; /* in the manifest's order */
  int32_t dtype;   /* the job's push_dtype */
  int32_t reserved;
} agg_piece;

/* A tensor that is written, likewise. */
typedef struct agg_target {
  float* data;
  int64_t num_elements;
} agg_target;

/* ClientOptions of worker_client/client_types.h, with its defaults. */
typedef struct agg_options {
  size_t size;
  const char* coordinator; /* "host:port" of shard 0 */
  int32_t rank;
  int32_t observer; /* 1: pulls only; rank and specs are ignored */
  const agg_spec* specs;
  size_t num_specs;
  const char* client_name; /* NULL: "host:pid" */
  double connect_timeout;
  double call_timeout;
  double transfer_timeout;
  double round_timeout;
  double reconnect_window;
  double recovery_window;
  int32_t channels_per_shard;
  int32_t local_sockets;
  int32_t tune_malloc;
  int32_t reserved;      /* 0 */
  const char* audit_log; /* NULL: none */
  int32_t shared_memory; /* 0: rows and parameters go over sockets alone */
  /* 1: what rounding leaves out of a row goes into the next one, 0: it is lost,
   * -1: as the job's push_dtype wants it (AGG_I8: 1, others: 0). */
  int32_t error_feedback;
  int32_t copy_threads; /* that share a copy to or from shared memory */
  int32_t reserved2;    /* 0 */
  /* TLS: paths of PEM files; NULL or "": of the environment, or none. */
  const char* tls_ca;
  const char* tls_certificate;
  const char* tls_key;
  const char* tls_server_name; /* NULL: the host of each address */
  const char* token_file;      /* NULL: AGG_TOKEN_FILE of the environment */
  int32_t cuda_rows;           /* 0: tensors of devices go by way of the host */
  int32_t reserved3;           /* 0 */
} agg_options;

/* PushInfo. All bytes 0 but `size`: its defaults. */
typedef struct agg_push_info {
  size_t size;
  int64_t examples;     /* 0: 1 */
  int32_t accumulation; /* 0: 1 */
  int32_t has_norm_sum; /* 1: micro_norm_squared_sum is known */
  double micro_norm_squared_sum;
  int32_t has_loss; /* 1: loss is known */
  int32_t reserved; /* 0 */
  double loss;
  double loss_scale;       /* 0: 1 */
  const char* traceparent; /* NULL: none */
  /* Of the parameters that the row was computed on, where this worker steps
   * them itself: agg_crc32c of them, say. 0: not said. */
  uint32_t parameters_digest;
  uint32_t reserved2; /* 0 */
} agg_push_info;

/* RoundOutcome. */
typedef struct agg_outcome {
  size_t size;
  uint64_t round;
  uint64_t version;
  uint64_t made;
  int32_t kind;     /* agg_outcome_kind */
  int32_t included; /* 1: this worker's last push of the round is in it */
  int32_t finished; /* 1: no round follows */
  int32_t num_ranks;
  const int32_t* ranks;
  const int32_t* excluded_ranks;
  int32_t num_excluded_ranks;
  int32_t reserved;
  /* From here to combined_norm: as RoundOutcome of client_types.h has them. */
  double learning_rate;
  double gain;
  double tau;
  double orthogonality; /* 1: orthogonal; 1/P: all P are parallel */
  double loss;
  double combined_norm;
  const char* message;
  const char* rule;
  const char* scope;
  const char* step_scale;
  const uint32_t* absent_tensors; /* RoundOutcome's; num_absent_tensors */
  const int32_t* differing_ranks; /* likewise; num_differing_ranks */
  int32_t num_absent_tensors;
  int32_t num_differing_ranks;
} agg_outcome;

typedef struct agg_state {
  size_t size;
  uint64_t version; /* last pulled, or seeded */
  uint64_t session; /* 0 for observers */
  int32_t seed_role;
  int32_t finished;
} agg_state;

/* JobDescription. */
typedef struct agg_job {
  size_t size;
  const char* job;
  const char* rule;
  const char* scope;
  const char* step_scale;
  const char* optimizer;
  int32_t workers;
  int32_t num_shards;
  const char* const* shards;     /* addresses, by ordinal */
  const char* const* transports; /* by ordinal, as of this call */
  int32_t push_dtype;
  int32_t pull_dtype;
  uint64_t num_tensors; /* for agg_get_spec */
} agg_job;

typedef struct agg_event {
  size_t size;
  int32_t kind; /* agg_event_kind */
  int32_t reserved;
  uint64_t version;
  uint64_t num_dropped; /* events that were lost before this one */
  const char* message;
} agg_event;

/* RuleRound::Segment of worker_client/rule_server.h. */
typedef struct agg_rule_segment {
  const char* tensor; /* "": the whole model */
  const double* gram; /* num_rows * num_rows of them, row by row */
  const void* state;  /* state_size bytes */
  size_t state_size;
} agg_rule_segment;

/* RuleRound. */
typedef struct agg_rule_round {
  size_t size;
  uint64_t epoch;
  uint64_t round;
  int32_t finished; /* 1: the job has, and nothing else is set */
  int32_t shadow;
  uint64_t num_rows;
  const int32_t* ranks; /* num_rows of them, as of the next three */
  const int64_t* examples;
  const int32_t* accumulation;
  const double* losses; /* NaN: not known */
  uint64_t num_segments;
  const agg_rule_segment* segments;
} agg_rule_round;

/* RuleDecision::Segment. */
typedef struct agg_rule_weights {
  const double* weights; /* one for each row */
  const void* state;     /* state_size bytes; NULL: none */
  size_t state_size;
} agg_rule_weights;

#endif /* AGG_WORKER_CLIENT_C_AGG_TYPES_H_ */
