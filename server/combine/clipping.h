// Clipping of the combined gradient by its global norm.
#ifndef AGG_SERVER_COMBINE_CLIPPING_H_
#define AGG_SERVER_COMBINE_CLIPPING_H_

namespace agg {

// min(1, clip_norm / norm), for the combined gradient's norm over all tensors,
// which comes from Gram matrices: sqrt(sum_t w_t^T G_t w_t). 1 when clip_norm
// is 0 (off) or the norm is 0. The factor goes into the coefficients, so
// clipping costs no pass over the rows (server/combine/README.md 8).
// REQUIRES: both finite and >= 0.
double ClipFactor(double norm, double clip_norm);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_CLIPPING_H_
