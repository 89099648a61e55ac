#include "comm/backends/shm_work.h"

#include <stdexcept>
#include <utility>

namespace ddp::detail {
namespace {

std::optional<std::vector<at::Tensor>> to_record(const std::vector<at::Tensor>& inputs) {
  if (inputs.empty()) return std::nullopt;
  return inputs;
}

}  // namespace

ShmWork::ShmWork(Description description, std::shared_ptr<shm::Engine> engine,
                 std::shared_ptr<shm::Operation> operation, std::shared_ptr<shm::Message> message)
    : Work(description.rank, description.type, description.title,
           to_record(description.list.empty() ? description.inputs : description.list)),
      description_(std::move(description)),
      engine_(std::move(engine)),
      operation_(std::move(operation)),
      message_(std::move(message)) {}

void ShmWork::complete() noexcept {
  try {
    if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
    c10::intrusive_ptr<c10::ivalue::Future> future;
    EndCallback callback;
    {
      const std::lock_guard lock(future_mutex_);
      is_complete_ = true;
      future = future_;
      callback = std::exchange(callback_, nullptr);
    }
    if (callback) callback(operation_->error() != nullptr);
    if (future) finish_once(*future);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a callback of the future has thrown, and there is no caller
  }
}

void ShmWork::add_end_callback(EndCallback callback) {
  {
    const std::lock_guard lock(future_mutex_);
    if (!is_complete_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback(operation_->error() != nullptr);
}

bool ShmWork::finish_once(c10::ivalue::Future& future) {
  if (is_finished_.exchange(true)) return false;
  if (const auto error = operation_->error()) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(description_.outputs));
  }
  return true;
}

bool ShmWork::isCompleted() {
  if (!operation_->has_ended()) engine_->poll();
  return operation_->has_ended();
}

// A thread that asks for the future usually waits for it soon, and cannot drive the operation while it waits. So the
// operation makes progress in this call for a moment. It often ends here, which saves waking up the engine's thread and
// then this one. The moment is short, since another rank may first need something else of this rank. If the operation
// has ended, this waits until the future is completed too: the thread that ended the operation may not have done that
// yet.
c10::intrusive_ptr<c10::ivalue::Future> ShmWork::getFuture() {
  constexpr auto kProgressTime = std::chrono::milliseconds(1);
  operation_->set_calls_program();
  if (!message_) engine_->wait(*operation_, kProgressTime);
  std::unique_lock lock(future_mutex_);
  if (!future_) future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto future = future_;
  lock.unlock();
  if (!operation_->has_ended()) {
    engine_->make_urgent();
  } else if (!finish_once(*future)) {
    future->wait();
  }
  return future;
}

int ShmWork::sourceRank() const {
  return message_ ? message_->peer() : Work::sourceRank();
}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  if (timeout != kNoTimeout && message_) {
    engine_->limit(*message_, timeout);
    engine_->wait(*operation_);
  } else if (timeout != kNoTimeout) {
    if (!engine_->wait(*operation_, timeout)) throw std::runtime_error("Operation timed out!");
  } else {
    engine_->wait(*operation_);
  }
  if (const auto error = operation_->error()) std::rethrow_exception(error);
  return true;
}

bool add_end_callback(c10d::Work& work, ShmWork::EndCallback callback) {
  if (auto* const own = dynamic_cast<ShmWork*>(&work)) {
    own->add_end_callback(std::move(callback));
    return true;
  }
  try {
    const auto future = work.getFuture();
    if (!future || !future->devices().empty()) return false;
    future->addCallback([callback = std::move(callback)](c10::ivalue::Future& done) { callback(done.hasError()); });
    return true;
  } catch (const std::exception&) {  // a backend without futures
    return false;
  }
}

}  // namespace ddp::detail
