#include "comm/backends/shm_backend.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/ScopeExit.h>

#include <utility>

#include "comm/backends/monitored_barrier.h"
#include "comm/backends/shm_tensors.h"
#include "comm/backends/shm_work.h"
#include "comm/backends/sparse_sum.h"
#include "comm/core/call_purpose.h"

namespace ddp::detail {
ShmBackend::ShmBackend(int rank, int size, std::shared_ptr<shm::Engine> engine, std::chrono::milliseconds timeout,
                       shm::Order order)
    : Backend(rank, size),
      place_{.rank = rank, .ranks = size},
      engine_(std::move(engine)),
      timeout_(timeout),
      order_(order) {}

ShmBackend::~ShmBackend() {
  shutdown();
}

void ShmBackend::abort() {
  engine_->stop("its group was aborted", /*has_failed=*/true);
}

void ShmBackend::shutdown() {
  engine_->stop("its group was closed", /*has_failed=*/false);
}

// The operation owns its work until the operation ends or fails to start.
template <typename Operation>
void ShmBackend::begin(const std::shared_ptr<Operation>& operation, const c10::intrusive_ptr<ShmWork>& work) {
  operation->set_on_end([work] { work->complete(); });
  try {
    engine_->start(operation);
  } catch (...) {
    operation->set_on_end(nullptr);
    throw;
  }
}

template <typename StartOne>
ShmBackend::WorkPtr ShmBackend::start_list(const Tensors& inputs, const StartOne& start_one) {
  TORCH_CHECK(!inputs.empty(), "shm: expected a list of at least one tensor");
  WorkPtr work;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const List list{.inputs = inputs, .is_last = i + 1 == inputs.size()};
    list_ = &list;
    const auto end = c10::make_scope_exit([this] { list_ = nullptr; });
    work = start_one(i);
  }
  return work;
}

// A call for which its caller waits at once runs in the calling thread.
ShmBackend::WorkPtr ShmBackend::start(Call call, const shm::JointPtr& operation) {
  operation->set_purpose(thread_call_purpose());
  operation->set_timeout(call.timeout == c10d::kUnsetTimeout ? timeout_ : call.timeout);
  const bool is_event = list_ == nullptr || list_->is_last;
  auto work = c10::make_intrusive<ShmWork>(ShmWork::Description{.rank = rank_,
                                                                .type = call.type,
                                                                .title = is_event ? call.title : nullptr,
                                                                .inputs = std::move(call.inputs),
                                                                .outputs = std::move(call.outputs),
                                                                .list = list_ == nullptr ? Tensors{} : list_->inputs,
                                                                .number = ++number_},
                                           engine_, operation);
  const ContiguousCopies copies = std::move(call.copies);
  if (call.async && !copies.is_needed()) {
    begin(operation, work);
    return work;
  }
  engine_->run(operation);
  if (!operation->error()) copies.copy_back();
  work->complete();
  return work;
}

shm::Reduction ShmBackend::reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  return {.dtype = dtype_of(tensor), .op = operator_of(op, tensor), .order = order_};
}

ShmBackend::WorkPtr ShmBackend::start_all_reduce(c10d::OpType type, const at::Tensor& tensor, const Tensors& outputs,
                                                 const c10d::AllreduceOptions& options, size_t first, size_t whole) {
  ContiguousCopies copies;
  const at::Tensor data = real_numbers(copies.writable(tensor), options.reduceOp);
  shm::Reduction how = reduction(data, options.reduceOp);
  how.first = first;
  how.whole = whole;
  const auto operation = shm::all_reduce(bytes_of(data), static_cast<size_t>(data.numel()), how, place_);
  return start(call_of(type, "shm:all_reduce", {tensor}, outputs, options, std::move(copies)), operation);
}

ShmBackend::WorkPtr ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  return start_all_reduce(c10d::OpType::ALLREDUCE, only(tensors, "allreduce"), tensors, options);
}

ShmBackend::WorkPtr ShmBackend::all_reduce_in_wait(const at::Tensor& tensor) {
  return start_all_reduce(c10d::OpType::ALLREDUCE, tensor, {tensor}, {});
}

void ShmBackend::all_reduce_in_call(const at::Tensor& tensor, const c10d::ReduceOp& op, shm::WaitObserver& observer) {
  ++number_;
  const auto operation = shm::all_reduce_now(*engine_, bytes_of(tensor), static_cast<size_t>(tensor.numel()),
                                             reduction(tensor, op), place_, timeout_, observer);
  if (!operation) return;
  if (const auto error = operation->error()) std::rethrow_exception(error);
}

// gloo reduces the tensors of a list as one tensor.
ShmBackend::WorkPtr ShmBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const auto numbers_of = [](const at::Tensor& tensor) {
    return static_cast<size_t>(tensor.numel()) * (tensor.is_complex() ? 2 : 1);
  };
  size_t whole = 0;
  for (const at::Tensor& tensor : tensors) {
    check_dense(tensor, "allreduce_coalesced");
    TORCH_CHECK(tensor.scalar_type() == tensors.front().scalar_type(), "shm: allreduce_coalesced: expected one dtype");
    whole += numbers_of(tensor);
  }
  size_t first = 0;
  return start_list(tensors, [&](size_t i) {
    WorkPtr work = start_all_reduce(c10d::OpType::ALLREDUCE_COALESCED, tensors[i], tensors, options, first, whole);
    first += numbers_of(tensors[i]);
    return work;
  });
}

ShmBackend::WorkPtr ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  check_root(options.rootRank, size_, "reduce");
  const at::Tensor tensor = only(tensors, "reduce");
  TORCH_CHECK(options.rootTensor == 0, "shm: reduce: expected rootTensor 0, as the list has one tensor");
  ContiguousCopies copies;
  const at::Tensor data = real_numbers(copies.writable(tensor), options.reduceOp);
  return start(call_of(c10d::OpType::REDUCE, "shm:reduce", tensors, tensors, options, std::move(copies)),
               shm::reduce(bytes_of(data), static_cast<size_t>(data.numel()), reduction(data, options.reduceOp),
                           static_cast<int>(options.rootRank), place_));
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  return start_reduce_scatter(outputs, inputs, options, /*is_one_tensor=*/false);
}

ShmBackend::WorkPtr ShmBackend::start_reduce_scatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                                                     const c10d::ReduceScatterOptions& options, bool is_one_tensor) {
  const at::Tensor output = only(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1, "shm: reduce_scatter: expected one list of inputs, got ", inputs.size());
  check_list(inputs[0], static_cast<size_t>(size_), output.nbytes(), "reduce_scatter");
  ContiguousCopies copies;
  const at::Tensor result = real_numbers(copies.writable(output), options.reduceOp);
  Tensors kept;
  std::vector<const std::byte*> places;
  for (const at::Tensor& input : inputs[0]) {
    kept.push_back(copies.readable(input));
    places.push_back(bytes_of(kept.back()));
  }
  shm::Reduction how = reduction(result, options.reduceOp);
  const auto count = static_cast<size_t>(result.numel());
  if (is_one_tensor) {
    how.first = count * static_cast<size_t>(rank_);
    how.whole = count * static_cast<size_t>(size_);
  }
  note_written(outputs);
  return start(call_of(c10d::OpType::REDUCE_SCATTER, "shm:reduce_scatter", kept, outputs, options, std::move(copies)),
               shm::reduce_scatter(bytes_of(result), places, count, how, place_));
}

ShmBackend::WorkPtr ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(input.numel() == output.numel() * size_, "shm: reduce_scatter: expected an input of ", size_,
              " times the output's ", output.numel(), " elements, got ", input.numel());
  ContiguousCopies copies;
  const at::Tensor whole = copies.readable(input);
  Tensors outputs{output};
  std::vector<Tensors> inputs(1);
  for (int64_t rank = 0; rank < size_; ++rank) {
    inputs[0].push_back(whole.detach().view({-1}).narrow(0, rank * output.numel(), output.numel()));
  }
  return start_reduce_scatter(outputs, inputs, options, /*is_one_tensor=*/true);
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "shm: reduce_scatter: expected as many inputs as outputs");
  return start_list(inputs, [&](size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); });
}

ShmBackend::WorkPtr ShmBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1 && tensors[0].is_sparse(), "shm: expected one sparse tensor");
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "shm: sparse tensors can only be summed");
  const at::NoGradGuard no_grad;
  const c10d::AllgatherOptions gather_options{.timeout = options.timeout, .asyncOp = false};
  const at::Tensor sum = sum_of_sparse(tensors[0], [&](at::Tensor part) {
    at::Tensor all = at::empty({size_ * part.numel()}, part.options());
    at::Tensor flat = part.contiguous().view({-1});
    _allgather_base(all, flat, gather_options)->wait();
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes.insert(sizes.begin(), size_);
    return all.view(sizes);
  });
  tensors[0].copy_(sum);  // a detached sparse tensor would have indices of its own
  return start({.type = c10d::OpType::_ALLREDUCE_SPARSE,
                .title = "shm:sparse_all_reduce",
                .outputs = {sum},
                .timeout = options.timeout,
                .async = false},
               shm::barrier());
}

ShmBackend::WorkPtr ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_root(options.rootRank, size_, "broadcast");
  const at::Tensor tensor = only(tensors, "broadcast");
  ContiguousCopies copies;
  const at::Tensor data = copies.writable(tensor);
  return start(call_of(c10d::OpType::BROADCAST, "shm:broadcast", tensors, tensors, options, std::move(copies)),
               shm::broadcast(bytes_of(data), data.nbytes(), static_cast<int>(options.rootRank), place_));
}

ShmBackend::WorkPtr ShmBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  ContiguousCopies copies;
  Tensors kept{copies.readable(only(inputs, "allgather"))};
  TORCH_CHECK(outputs.size() == 1, "shm: allgather: expected one list of outputs, got ", outputs.size());
  check_list(outputs[0], static_cast<size_t>(size_), kept[0].nbytes(), "allgather");
  std::vector<std::byte*> places;
  for (const at::Tensor& output : outputs[0]) places.push_back(bytes_of(copies.writable(output)));
  note_written(outputs[0]);
  return start(call_of(c10d::OpType::ALLGATHER, "shm:all_gather", kept, outputs[0], options, std::move(copies)),
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
  return allgather(outputs, inputs, options);
}

ShmBackend::WorkPtr ShmBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "shm: all_gather: expected a list for each rank");
  return start_list(inputs, [&](size_t i) {
    std::vector<Tensors> of_one(1);
    for (const Tensors& of_rank : outputs) of_one[0].push_back(of_rank.at(i));
    Tensors input{inputs[i]};
    return allgather(of_one, input, options);
  });
}

ShmBackend::WorkPtr ShmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "shm: all_gather: expected as many outputs as inputs");
  return start_list(inputs, [&](size_t i) { return _allgather_base(outputs[i], inputs[i], options); });
}

ShmBackend::WorkPtr ShmBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::GatherOptions& options) {
  check_root(options.rootRank, size_, "gather");
  ContiguousCopies copies;
  Tensors kept{copies.readable(only(inputs, "gather"))};
  const auto root = static_cast<int>(options.rootRank);
  std::vector<std::byte*> places;
  if (root == rank_) {
    TORCH_CHECK(outputs.size() == 1, "shm: gather: expected one list of outputs on the root, got ", outputs.size());
    check_list(outputs[0], static_cast<size_t>(size_), kept[0].nbytes(), "gather");
    for (const at::Tensor& output : outputs[0]) places.push_back(bytes_of(copies.writable(output)));
    note_written(outputs[0]);
  } else {
    TORCH_CHECK(outputs.empty(), "shm: gather: expected outputs on the root only");
  }
  return start(call_of(c10d::OpType::GATHER, "shm:gather", kept, root == rank_ ? outputs[0] : Tensors{}, options,
                       std::move(copies)),
               shm::gather(std::move(places), bytes_of(kept[0]), kept[0].nbytes(), root, place_));
}

#if TORCH_VERSION_MINOR >= 14
ShmBackend::WorkPtr ShmBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                              const c10d::GatherOptions& options) {
  std::vector<Tensors> outputs;
  if (options.rootRank == rank_) {
    TORCH_CHECK(output.is_contiguous() && output.numel() == input.numel() * size_,
                "shm: gather: expected a contiguous output of ", size_, " inputs, got ", output.numel(), " elements");
    outputs.push_back(rows_of(output.detach(), size_));
  }
  Tensors inputs{input};
  return gather(outputs, inputs, options);
}
#endif

ShmBackend::WorkPtr ShmBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ScatterOptions& options) {
  check_root(options.rootRank, size_, "scatter");
  const at::Tensor output = only(outputs, "scatter");
  const auto root = static_cast<int>(options.rootRank);
  ContiguousCopies copies;
  const at::Tensor result = copies.writable(output);
  Tensors kept;
  std::vector<const std::byte*> places;
  if (root == rank_) {
    TORCH_CHECK(inputs.size() == 1, "shm: scatter: expected one list of inputs on the root, got ", inputs.size());
    check_list(inputs[0], static_cast<size_t>(size_), output.nbytes(), "scatter");
    for (const at::Tensor& input : inputs[0]) {
      kept.push_back(copies.readable(input));
      places.push_back(bytes_of(kept.back()));
    }
  } else {
    TORCH_CHECK(inputs.empty(), "shm: scatter: expected inputs on the root only");
  }
  return start(call_of(c10d::OpType::SCATTER, "shm:scatter", kept, outputs, options, std::move(copies)),
               shm::scatter(bytes_of(result), std::move(places), result.nbytes(), root, place_));
}

ShmBackend::WorkPtr ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions& options) {
  check_dense(output, "alltoall");
  check_dense(input, "alltoall");
  ContiguousCopies copies;
  const at::Tensor sent = copies.readable(input);
  const at::Tensor received = copies.writable(output);
  const bool are_equal = output_splits.empty() && input_splits.empty();
  return start(call_of(c10d::OpType::ALLTOALL_BASE, "shm:all_to_all", {sent}, {output}, options, std::move(copies)),
               shm::all_to_all(pieces_of(received, output_splits, size_), pieces_of(sent, input_splits, size_),
                               are_equal, place_));
}

ShmBackend::WorkPtr ShmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  TORCH_CHECK(static_cast<int>(outputs.size()) == size_ && inputs.size() == outputs.size(),
              "shm: alltoall: expected a tensor for each of ", size_, " ranks");
  ContiguousCopies copies;
  Tensors kept;
  std::vector<shm::Piece> sent;
  std::vector<shm::Piece> received;
  for (const at::Tensor& input : inputs) {
    check_dense(input, "alltoall");
    kept.push_back(copies.readable(input));
    sent.push_back({bytes_of(kept.back()), kept.back().nbytes()});
  }
  for (const at::Tensor& output : outputs) {
    check_dense(output, "alltoall");
    received.push_back({bytes_of(copies.writable(output)), output.nbytes()});
  }
  note_written(outputs);
  return start(call_of(c10d::OpType::ALLTOALL, "shm:all_to_all", kept, outputs, options, std::move(copies)),
               shm::all_to_all(std::move(received), std::move(sent), /*are_equal=*/false, place_));
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return start({.type = c10d::OpType::BARRIER, .title = "shm:barrier", .timeout = options.timeout}, shm::barrier());
}

void ShmBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
  monitored_barrier(*this, {.timeout = timeout, .names_all_missing = wait_all_ranks, .number = monitored_++});
}

ShmBackend::WorkPtr ShmBackend::start_message(c10d::OpType type, const char* title, Tensors& tensors,
                                              shm::Message::Direction direction, int peer, int tag) {
  const at::Tensor tensor = only(tensors, title);
  TORCH_CHECK(tensor.is_contiguous(), title, ": expected a contiguous tensor");
  TORCH_CHECK(tag >= 0, title, ": expected a tag of at least 0, got ", tag);
  TORCH_CHECK(peer == shm::Message::kAnyRank || (peer >= 0 && peer < size_), title, ": expected a rank from 0 to ",
              size_ - 1, ", got ", peer);
  TORCH_CHECK(size_ > 1 && peer != rank_, title, ": expected a rank other than its own, ", rank_, " of ", size_);
  const auto message =
      std::make_shared<shm::Message>(direction, peer, static_cast<uint64_t>(tag), bytes_of(tensor), tensor.nbytes());
  message->set_timeout(timeout_);
  auto work = c10::make_intrusive<ShmWork>(
      ShmWork::Description{.rank = rank_, .type = type, .title = title, .inputs = tensors, .outputs = tensors}, engine_,
      message, message);
  begin(message, work);
  return work;
}

ShmBackend::WorkPtr ShmBackend::send(Tensors& tensors, int to, int tag) {
  return start_message(c10d::OpType::SEND, "shm:send", tensors, shm::Message::Direction::kSend, to, tag);
}

ShmBackend::WorkPtr ShmBackend::recv(Tensors& tensors, int from, int tag) {
  return start_message(c10d::OpType::RECV, "shm:recv", tensors, shm::Message::Direction::kReceive, from, tag);
}

ShmBackend::WorkPtr ShmBackend::recvAnysource(Tensors& tensors, int tag) {
  return start_message(c10d::OpType::RECVANYSOURCE, "shm:recvAnySource", tensors, shm::Message::Direction::kReceive,
                       shm::Message::kAnyRank, tag);
}

}  // namespace ddp::detail
