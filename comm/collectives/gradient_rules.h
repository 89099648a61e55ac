// Internal: collectives in autograd's graph, and the rule for the gradient of each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/collectives/begin.h"
#include "comm/core/call_purpose.h"

namespace ddp::functional {

using Tensors = std::vector<at::Tensor>;

/// The group and settings of a call, which the collectives of its backward have too.
struct Scope {
  GroupHandle group;
  CollectiveOptions options;
  bool async = false;
  std::string note{};    ///< for a backward's collective, whose gradient it is
  uint16_t purpose = 0;  ///< the same for backends

  detail::BeginOptions begin(bool is_recorded) const {
    std::string text = note;
    if (is_recorded) text += text.empty() ? "with gradient" : ", with gradient";
    return {.options = options, .async = async, .note = std::move(text)};
  }
  Scope of_gradient(uint64_t number) const {
    return {.group = group,
            .options = options,
            .note = "gradient of number " + std::to_string(number),
            .purpose = detail::purpose_of_gradient(number)};
  }
};

struct Result {
  detail::Started started;
  Tensors outputs;
};

/// A collective and its gradient.
struct Rule {
  std::function<Result(const Tensors& inputs, const detail::BeginOptions& begin)> run;
  /// A gradient of each output to one of each input; `saved` are the inputs and outputs, with `saves`.
  std::function<Tensors(const Tensors& gradients, const Tensors& saved, const Scope& scope)> backward;
  bool saves = false;
};

/// Starts the collective of `rule`; its outputs are in the graph if an input requires a gradient in gradient mode.
Result begin(const Scope& scope, const Tensors& inputs, const Rule& rule);
/// The same, and waits for its end.
Tensors run(const Scope& scope, const Tensors& inputs, const Rule& rule);

/// `is_coalesced`: one message for each dtype and device; otherwise there is one tensor.
Rule all_reduce_rule(const GroupHandle& group, ReduceOp op, bool is_coalesced);
/// Of tensors with at least one dimension, along the first; `is_coalesced`: of a list, as
/// detail::begin_all_gather_coalesced() and begin_reduce_scatter_coalesced().
Rule all_gather_rule(const GroupHandle& group, bool is_coalesced);
Rule reduce_scatter_rule(const GroupHandle& group, ReduceOp op, bool is_coalesced);
/// Without sizes the parts are equal.
Rule all_to_all_rule(const GroupHandle& group, const std::vector<int64_t>& output_sizes,
                     const std::vector<int64_t>& input_sizes);
Rule broadcast_rule(const GroupHandle& group, int root);
Rule reduce_rule(const GroupHandle& group, int root, ReduceOp op);
Rule gather_rule(const GroupHandle& group, int root);
Rule scatter_rule(const GroupHandle& group, int root);

}  // namespace ddp::functional
