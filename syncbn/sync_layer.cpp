#include "syncbn/sync_layer.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/core/graph_capture.h"

namespace ddp::detail {

SyncLayer::SyncLayer(GroupHandle group, std::string name, int64_t channels)
    : group_(std::move(group)), name_(std::move(name)), channels_(channels) {}

std::string SyncLayer::describe() const {
  return who(group_.info()) + ": SyncBatchNorm" + (name_.empty() ? "" : " '" + name_ + "'");
}

std::string SyncLayer::objection(const at::Tensor& input) const {
  const int64_t dimensions = input.dim();
  if (dimensions < 2 || dimensions > 5) {
    return describe() + ": expected an input of 2 to 5 dimensions (N, C, ...), got " + shape_text(input);
  }
  if (input.size(1) != channels_) {
    return describe() + ": expected " + std::to_string(channels_) + " channels in dimension 1, got an input of shape " +
           shape_text(input);
  }
  if (!at::isFloatingType(input.scalar_type())) {
    return describe() + ": expected a floating-point input, got " + shape_text(input);
  }
  return "";
}

std::string SyncLayer::disagreement(const at::Tensor& input) {
  if (compared_.load(std::memory_order_relaxed)) return "";
  refuse_capture(describe() + ", first forward",
                 "the ranks compare their channels on the host. Run one forward before");
  // The format is "CHANNELS|TEXT", where TEXT is used in error messages.
  const std::string own = std::to_string(input.dim() < 2 ? -1 : input.size(1)) + "|" + shape_text(input);
  const std::vector<std::string> all = all_gather_strings(own, group_);
  const auto channels = [](const std::string& text) { return text.substr(0, text.find('|')); };
  const bool equal =
      std::all_of(all.begin(), all.end(), [&](const std::string& text) { return channels(text) == channels(own); });
  if (!equal) {
    std::string text = describe() + ": the ranks disagree on the number of channels:";
    for (size_t rank = 0; rank < all.size(); ++rank) {
      text += (rank == 0 ? " rank " : "; rank ") + std::to_string(rank) + " has an input of shape " +
              all[rank].substr(all[rank].find('|') + 1);
    }
    return text + ". All ranks must build the same model and feed it the same way.";
  }
  compared_.store(true, std::memory_order_relaxed);
  return "";
}

void SyncLayer::record(bool gather, const at::Tensor& tensor) const {
  if (!shadowed_) return;
  shadowed_->add({.gather = gather, .channels = channels_, .device = tensor.device(), .type = tensor.scalar_type()});
}

std::string shape_text(const at::Tensor& input) {
  std::ostringstream text;
  text << input.sizes() << " (" << input.scalar_type() << ", " << input.device() << ")";
  return text.str();
}

}  // namespace ddp::detail
