// ShmBackend: collectives that move bytes without looking at them, and sparse tensors, which are moved and then added.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>

#include <numeric>
#include <utility>

#include "comm/backends/shm_backend.h"
#include "comm/backends/shm_tensors.h"

namespace ddp::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

// One row of `whole` for each rank.
Tensors rows_of(const at::Tensor& whole, int64_t ranks) {
  Tensors rows;
  const int64_t each = whole.numel() / ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) rows.push_back(whole.view({-1}).narrow(0, rank * each, each));
  return rows;
}

std::vector<shm::Piece> pieces_of(const at::Tensor& tensor, const std::vector<int64_t>& splits, int ranks) {
  TORCH_CHECK(
      splits.empty() ? tensor.dim() > 0 && tensor.size(0) % ranks == 0 : static_cast<int>(splits.size()) == ranks,
      "shm: alltoall: expected a row count divisible by ", ranks, " or a count for each rank");
  const size_t row = tensor.size(0) == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(tensor.size(0));
  std::vector<shm::Piece> pieces;
  std::byte* at = bytes_of(tensor);
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t rows = splits.empty() ? tensor.size(0) / ranks : splits[static_cast<size_t>(rank)];
    pieces.push_back({at, static_cast<size_t>(rows) * row});
    at += pieces.back().bytes;
  }
  TORCH_CHECK(at == bytes_of(tensor) + tensor.nbytes(), "shm: alltoall: the counts do not add up to the rows");
  return pieces;
}

}  // namespace

ShmBackend::WorkPtr ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only(tensors, "broadcast");
  Stand stand;
  const at::Tensor data = stand.out(tensor);
  return start(call_of(c10d::OpType::BROADCAST, "shm:broadcast", tensors, tensors, options, std::move(stand)),
               shm::broadcast(bytes_of(data), data.nbytes(), static_cast<int>(options.rootRank), place_));
}

ShmBackend::WorkPtr ShmBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  Stand stand;
  Tensors kept{stand.in(only(inputs, "allgather"))};
  TORCH_CHECK(outputs.size() == 1, "shm: allgather: expected one list of outputs, got ", outputs.size());
  check_list(outputs[0], static_cast<size_t>(size_), kept[0].nbytes(), "allgather");
  std::vector<std::byte*> places;
  for (const at::Tensor& output : outputs[0]) places.push_back(bytes_of(stand.out(output)));
  return start(call_of(c10d::OpType::ALLGATHER, "shm:all_gather", kept, outputs[0], options, std::move(stand)),
               shm::all_gather(std::move(places), bytes_of(kept[0]), kept[0].nbytes(), place_));
}

ShmBackend::WorkPtr ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  TORCH_CHECK(output.numel() == input.numel() * size_, "shm: all_gather: expected an output of ", size_,
              " times the input's ", input.numel(), " elements, got ", output.numel());
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "shm: all_gather: expected one dtype");
  TORCH_CHECK(output.is_contiguous(), "shm: all_gather: expected a contiguous output");
  std::vector<Tensors> outputs{rows_of(output.detach(), size_)};
  Tensors inputs{input};
  WorkPtr work = allgather(outputs, inputs, options);
  return work;
}

ShmBackend::WorkPtr ShmBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "shm: all_gather: expected a list for each rank");
  return for_each(inputs.size(), [&](size_t i) {
    std::vector<Tensors> of_one(1);
    for (const Tensors& of_rank : outputs) of_one[0].push_back(of_rank.at(i));
    Tensors input{inputs[i]};
    return allgather(of_one, input, options);
  });
}

ShmBackend::WorkPtr ShmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "shm: all_gather: expected as many outputs as inputs");
  return for_each(outputs.size(), [&](size_t i) { return _allgather_base(outputs[i], inputs[i], options); });
}

ShmBackend::WorkPtr ShmBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::GatherOptions& options) {
  Stand stand;
  Tensors kept{stand.in(only(inputs, "gather"))};
  const auto root = static_cast<int>(options.rootRank);
  std::vector<std::byte*> places;
  if (root == rank_) {
    TORCH_CHECK(outputs.size() == 1, "shm: gather: expected one list of outputs on the root, got ", outputs.size());
    check_list(outputs[0], static_cast<size_t>(size_), kept[0].nbytes(), "gather");
    for (const at::Tensor& output : outputs[0]) places.push_back(bytes_of(stand.out(output)));
  } else {
    TORCH_CHECK(outputs.empty(), "shm: gather: expected outputs on the root only");
  }
  return start(call_of(c10d::OpType::GATHER, "shm:gather", kept, root == rank_ ? outputs[0] : Tensors{}, options,
                       std::move(stand)),
               shm::gather(std::move(places), bytes_of(kept[0]), kept[0].nbytes(), root, place_));
}

ShmBackend::WorkPtr ShmBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& options) {
  const at::Tensor output = only(outputs, "scatter");
  const auto root = static_cast<int>(options.rootRank);
  Stand stand;
  const at::Tensor result = stand.out(output);
  Tensors kept;
  std::vector<const std::byte*> places;
  if (root == rank_) {
    TORCH_CHECK(inputs.size() == 1, "shm: scatter: expected one list of inputs on the root, got ", inputs.size());
    check_list(inputs[0], static_cast<size_t>(size_), output.nbytes(), "scatter");
    for (const at::Tensor& input : inputs[0]) {
      kept.push_back(stand.in(input));
      places.push_back(bytes_of(kept.back()));
    }
  } else {
    TORCH_CHECK(inputs.empty(), "shm: scatter: expected inputs on the root only");
  }
  return start(call_of(c10d::OpType::SCATTER, "shm:scatter", kept, outputs, options, std::move(stand)),
               shm::scatter(bytes_of(result), std::move(places), result.nbytes(), root, place_));
}

ShmBackend::WorkPtr ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions& options) {
  check_dense(output, "alltoall");
  check_dense(input, "alltoall");
  Stand stand;
  const at::Tensor sent = stand.in(input);
  const at::Tensor received = stand.out(output);
  const bool are_equal = output_splits.empty() && input_splits.empty();
  return start(call_of(c10d::OpType::ALLTOALL_BASE, "shm:all_to_all", {sent}, {output}, options, std::move(stand)),
               shm::all_to_all(pieces_of(received, output_splits, size_), pieces_of(sent, input_splits, size_),
                               are_equal, place_));
}

ShmBackend::WorkPtr ShmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK(static_cast<int>(outputs.size()) == size_ && inputs.size() == outputs.size(),
              "shm: alltoall: expected a tensor for each of ", size_, " ranks");
  Stand stand;
  Tensors kept;
  std::vector<shm::Piece> sent;
  std::vector<shm::Piece> received;
  for (const at::Tensor& input : inputs) {
    check_dense(input, "alltoall");
    kept.push_back(stand.in(input));
    sent.push_back({bytes_of(kept.back()), kept.back().nbytes()});
  }
  for (const at::Tensor& output : outputs) {
    check_dense(output, "alltoall");
    received.push_back({bytes_of(stand.out(output)), output.nbytes()});
  }
  return start(call_of(c10d::OpType::ALLTOALL, "shm:all_to_all", kept, outputs, options, std::move(stand)),
               shm::all_to_all(std::move(received), std::move(sent), /*are_equal=*/false, place_));
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return start({.type = c10d::OpType::BARRIER, .title = "shm:barrier", .timeout = options.timeout}, shm::barrier());
}

void ShmBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  Call call{.type = c10d::OpType::BARRIER, .title = "shm:barrier", .timeout = options.timeout, .async = false};
  start(std::move(call), shm::barrier())->wait();
}

// Ranks have different numbers of elements, so they are told first; the parts are filled up to the longest.
ShmBackend::WorkPtr ShmBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1 && tensors[0].is_sparse(), "shm: expected one sparse tensor");
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "shm: of sparse tensors there is the sum only");
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensors[0].detach().coalesce();
  const c10d::AllgatherOptions gather_options{.timeout = options.timeout, .asyncOp = false};
  const auto gathered = [&](at::Tensor part) {
    at::Tensor all = at::empty({size_ * part.numel()}, part.options());
    at::Tensor flat = part.contiguous().view({-1});
    _allgather_base(all, flat, gather_options)->wait();
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes.insert(sizes.begin(), size_);
    return all.view(sizes);
  };
  const at::Tensor counts = gathered(at::tensor({own._nnz()}, at::kLong));
  const int64_t most = std::max<int64_t>(1, counts.max().item<int64_t>());
  const at::Tensor indices = own._indices();
  const at::Tensor values = own._values();
  at::Tensor padded_indices = at::empty({most, indices.size(0)}, indices.options()).zero_();
  padded_indices.narrow(0, 0, own._nnz()).copy_(indices.t());
  std::vector<int64_t> value_sizes = values.sizes().vec();
  value_sizes[0] = most;
  at::Tensor padded_values = at::empty(value_sizes, values.options()).zero_();
  padded_values.narrow(0, 0, own._nnz()).copy_(values);
  const at::Tensor all_indices = gathered(padded_indices);
  const at::Tensor all_values = gathered(padded_values);
  at::Tensor sum;
  for (int64_t rank = 0; rank < size_; ++rank) {
    const int64_t count = counts[rank].item<int64_t>();
    const at::Tensor part = at::sparse_coo_tensor(all_indices[rank].narrow(0, 0, count).t().contiguous(),
                                                  all_values[rank].narrow(0, 0, count), own.sizes());
    sum = rank == 0 ? part : sum.add(part);
  }
  tensors[0].detach().copy_(sum);
  return start({.type = c10d::OpType::_ALLREDUCE_SPARSE,
                .title = "shm:sparse_all_reduce",
                .outputs = {sum},
                .timeout = options.timeout,
                .async = false},
               shm::barrier());
}

}  // namespace ddp::detail
