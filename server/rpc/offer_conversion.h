// A round's rows and a shard's offer to close it (P44) as messages of
// proto/control.proto, and back.
#ifndef AGG_SERVER_RPC_OFFER_CONVERSION_H_
#define AGG_SERVER_RPC_OFFER_CONVERSION_H_

#include <memory>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/control.pb.h"
#include "server/round/phase.h"

namespace agg {

using RoundRowField = google::protobuf::RepeatedPtrField<v1::RoundRow>;

void AddRows(const std::vector<RoundRow>& rows, RoundRowField* out);
std::vector<RoundRow> FromProto(const RoundRowField& rows);

v1::CloseOffer ToProto(const CloseOffer& offer);
// Null if the message has more rows than a job has workers, or other numbers of
// rows and of checksums: it counts for nothing then. Grams are looked at by who
// adds them up.
std::shared_ptr<const CloseOffer> FromProto(const v1::CloseOffer& message);

}  // namespace agg

#endif  // AGG_SERVER_RPC_OFFER_CONVERSION_H_
