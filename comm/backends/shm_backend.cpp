// ShmBackend: how calls are started, reductions and messages. What only moves bytes stands in shm_movements.cpp.
#include "comm/backends/shm_backend.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "comm/backends/shm_tensors.h"
#include "comm/backends/shm_work.h"

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

// The operation holds its work until it has ended, or could not be started.
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

// A call that its caller waits for at once is done here and now, without another thread.
ShmBackend::WorkPtr ShmBackend::start(Call call, const shm::JointPtr& operation) {
  operation->set_timeout(call.timeout == c10d::kUnsetTimeout ? timeout_ : call.timeout);
  auto work = c10::make_intrusive<ShmWork>(ShmWork::About{.rank = rank_,
                                                          .type = call.type,
                                                          .title = call.title,
                                                          .inputs = std::move(call.inputs),
                                                          .outputs = std::move(call.outputs),
                                                          .number = ++number_},
                                           engine_, operation);
  const Stand stand = std::move(call.stand);
  if (call.async && !stand.is_needed()) {
    begin(operation, work);
    return work;
  }
  engine_->run(operation);
  if (!operation->error()) stand.copy_back();
  work->complete();
  return work;
}

shm::Reduction ShmBackend::reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  return {.number = number_of(tensor), .op = operator_of(op, tensor), .order = order_};
}

ShmBackend::WorkPtr ShmBackend::start_all_reduce(c10d::OpType type, const at::Tensor& tensor, const Tensors& outputs,
                                                 const c10d::AllreduceOptions& options) {
  Stand stand;
  const at::Tensor data = real_numbers(stand.out(tensor), options.reduceOp);
  const auto operation =
      shm::all_reduce(bytes_of(data), static_cast<size_t>(data.numel()), reduction(data, options.reduceOp), place_);
  return start(call_of(type, "shm:all_reduce", {tensor}, outputs, options, std::move(stand)), operation);
}

ShmBackend::WorkPtr ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  return start_all_reduce(c10d::OpType::ALLREDUCE, only(tensors, "allreduce"), tensors, options);
}

ShmBackend::WorkPtr ShmBackend::all_reduce_in_wait(const at::Tensor& tensor) {
  return start_all_reduce(c10d::OpType::ALLREDUCE, tensor, {tensor}, {});
}

void ShmBackend::all_reduce_in_call(const at::Tensor& tensor, const c10d::ReduceOp& op, shm::Meanwhile& meanwhile) {
  ++number_;
  const auto operation = shm::all_reduce_now(*engine_, bytes_of(tensor), static_cast<size_t>(tensor.numel()),
                                             reduction(tensor, op), place_, timeout_, meanwhile);
  if (!operation) return;
  if (const auto error = operation->error()) std::rethrow_exception(error);
}

ShmBackend::WorkPtr ShmBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return for_each(tensors.size(), [&](size_t i) {
    check_dense(tensors[i], "allreduce_coalesced");
    return start_all_reduce(c10d::OpType::ALLREDUCE_COALESCED, tensors[i], tensors, options);
  });
}

ShmBackend::WorkPtr ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors, "reduce");
  TORCH_CHECK(options.rootTensor == 0, "shm: reduce: expected the list's only tensor as the root's");
  Stand stand;
  const at::Tensor data = real_numbers(stand.out(tensor), options.reduceOp);
  return start(call_of(c10d::OpType::REDUCE, "shm:reduce", tensors, tensors, options, std::move(stand)),
               shm::reduce(bytes_of(data), static_cast<size_t>(data.numel()), reduction(data, options.reduceOp),
                           static_cast<int>(options.rootRank), place_));
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1, "shm: reduce_scatter: expected one list of inputs, got ", inputs.size());
  check_list(inputs[0], static_cast<size_t>(size_), output.nbytes(), "reduce_scatter");
  Stand stand;
  const at::Tensor result = real_numbers(stand.out(output), options.reduceOp);
  Tensors kept;
  std::vector<const std::byte*> places;
  for (const at::Tensor& input : inputs[0]) {
    kept.push_back(stand.in(input));
    places.push_back(bytes_of(kept.back()));
  }
  return start(call_of(c10d::OpType::REDUCE_SCATTER, "shm:reduce_scatter", kept, outputs, options, std::move(stand)),
               shm::reduce_scatter(bytes_of(result), places, static_cast<size_t>(result.numel()),
                                   reduction(result, options.reduceOp), place_));
}

ShmBackend::WorkPtr ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(input.numel() == output.numel() * size_, "shm: reduce_scatter: expected an input of ", size_,
              " times the output's ", output.numel(), " elements, got ", input.numel());
  Stand stand;
  const at::Tensor whole = stand.in(input);
  Tensors outputs{output};
  std::vector<Tensors> inputs(1);
  for (int64_t rank = 0; rank < size_; ++rank) {
    inputs[0].push_back(whole.detach().view({-1}).narrow(0, rank * output.numel(), output.numel()));
  }
  return reduce_scatter(outputs, inputs, options);
}

ShmBackend::WorkPtr ShmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "shm: reduce_scatter: expected as many inputs as outputs");
  return for_each(outputs.size(), [&](size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); });
}

ShmBackend::WorkPtr ShmBackend::start_message(c10d::OpType type, const char* title, Tensors& tensors,
                                              shm::Message::Direction direction, int peer, int tag) {
  const at::Tensor tensor = only(tensors, title);
  TORCH_CHECK(tensor.is_contiguous(), title, ": expected a contiguous tensor");
  TORCH_CHECK(tag >= 0, title, ": expected a tag of at least 0, got ", tag);
  const auto message =
      std::make_shared<shm::Message>(direction, peer, static_cast<uint64_t>(tag), bytes_of(tensor), tensor.nbytes());
  message->set_timeout(timeout_);
  auto work = c10::make_intrusive<ShmWork>(
      ShmWork::About{.rank = rank_, .type = type, .title = title, .inputs = tensors, .outputs = tensors}, engine_,
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
