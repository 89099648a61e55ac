#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <ddprun/comm/collectives.h>

#include "comm/group/argument_checks.h"
#include "comm/group/group_state.h"
#include "ddprun/horovod/horovod.h"

namespace ddp::horovod {
namespace {

// Computes 1 - dot / (2 * squared_norm), or 1 if the norm is 0, on the device and without a host synchronization.
at::Tensor coefficient(const at::Tensor& dot, const at::Tensor& squared_norm) {
  const at::Tensor usual = 1 - dot / (2 * squared_norm);
  return at::where(squared_norm > 0, usual, at::ones_like(usual));
}

void check(const std::vector<at::Tensor>& tensors, const GroupHandle& group) {
  const int size = group.size();
  if ((size & (size - 1)) != 0) {
    throw std::invalid_argument(who(group.info()) +
                                ": Adasum needs a power of two as the number of ranks: start 2, 4, 8 … ranks");
  }
  for (const at::Tensor& tensor : tensors) {
    ddp::detail::check_unpackable(tensor, group, "Adasum");
    if (at::isFloatingType(tensor.scalar_type())) continue;
    ddp::detail::refuse(group, "Adasum", "expected floating-point tensors, got a " + ddp::detail::describe(tensor));
  }
}

// Exchanges the tensors with the partner once, and computes the adaptive sum of each. On both sides, the values of the
// lower rank are the first operand, so that both sides compute the same bits.
void combine(const std::vector<at::Tensor>& tensors, int partner, const GroupHandle& group) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) rows.push_back(tensor.detach().reshape({-1}));
  at::Tensor mine = at::cat(rows);
  const BackendTraits* backend = ddp::detail::backend_for(group, mine.device());
  if (backend == nullptr || !backend->sends_on_device) mine = mine.cpu();  // gloo can send only from the host
  const at::Tensor theirs = at::empty_like(mine);
  batch_send_recv({send_to(partner, mine), receive_from(partner, theirs)}, group);
  const bool lower = group.rank() < partner;
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor a = mine.narrow(0, offset, tensor.numel());
    const at::Tensor b = theirs.narrow(0, offset, tensor.numel());
    tensor.detach().copy_((lower ? adasum(a, b) : adasum(b, a)).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

}  // namespace

at::Tensor adasum(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() ||
      !at::isFloatingType(a.scalar_type())) {
    throw std::invalid_argument("adasum: expected two tensors of one shape and floating-point dtype");
  }
  const at::Tensor wide_a = a.to(at::kDouble);
  const at::Tensor wide_b = b.to(at::kDouble);
  const at::Tensor dot = (wide_a * wide_b).sum();
  const at::Tensor result =
      wide_a * coefficient(dot, wide_a.square().sum()) + wide_b * coefficient(dot, wide_b.square().sum());
  return result.to(a.scalar_type());
}

void adasum_allreduce(const std::vector<at::Tensor>& tensors, const GroupHandle& group) {
  check(tensors, group);
  if (tensors.empty()) return;
  const at::NoGradGuard no_grad;
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> by_kind;
  for (const at::Tensor& tensor : tensors) by_kind[{tensor.device().str(), tensor.scalar_type()}].push_back(tensor);
  for (int distance = 1; distance < group.size(); distance *= 2) {
    for (const auto& [kind, members] : by_kind) combine(members, group.rank() ^ distance, group);
  }
}

}  // namespace ddp::horovod
