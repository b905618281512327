// Plain copies; what a message may hold is bounded by its size.
#include "server/rpc/offer_conversion.h"

#include <utility>

#include "server/rpc/phase_limits.h"

namespace agg {

void AddRows(const std::vector<RoundRow>& rows, RoundRowField* out) {
  for (const RoundRow& row : rows) {
    v1::RoundRow* const added = out->Add();
    added->set_rank(row.rank);
    added->set_session(row.session);
    added->set_attempt(row.attempt);
  }
}

std::vector<RoundRow> FromProto(const RoundRowField& rows) {
  std::vector<RoundRow> result;
  for (const v1::RoundRow& row : rows) {
    result.push_back({row.rank(), row.session(), row.attempt()});
  }
  return result;
}

v1::CloseOffer ToProto(const CloseOffer& offer) {
  v1::CloseOffer message;
  message.set_round(offer.round);
  AddRows(offer.rows, message.mutable_rows());
  for (size_t i = 0; i < offer.result.grams.size(); ++i) {
    const SliceGram& gram = offer.result.grams[i];
    v1::SliceGram* const out = message.add_grams();
    out->set_slice(static_cast<uint32_t>(gram.slice));
    out->mutable_hi()->Add(gram.hi.begin(), gram.hi.end());
  }
  message.mutable_row_crc32c()->Add(offer.result.row_crc32c.begin(),
                                    offer.result.row_crc32c.end());
  message.set_seconds(offer.result.seconds);
  return message;
}

std::shared_ptr<const CloseOffer> FromProto(const v1::CloseOffer& message) {
  if (static_cast<int64_t>(message.rows_size()) > kMaxPhaseWorkers ||
      message.row_crc32c_size() != message.rows_size()) {
    return nullptr;
  }
  auto offer = std::make_shared<CloseOffer>();
  offer->round = message.round();
  offer->rows = FromProto(message.rows());
  for (const v1::SliceGram& gram : message.grams()) {
    offer->result.grams.push_back({static_cast<int32_t>(gram.slice()),
                                   {gram.hi().begin(), gram.hi().end()},
                                   {}});
  }
  offer->result.row_crc32c.assign(message.row_crc32c().begin(),
                                  message.row_crc32c().end());
  offer->result.seconds = message.seconds();
  return offer;
}

}  // namespace agg
