// The handle of an operation that runs asynchronously.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace ddp {

namespace detail {
class PendingCall;
void wait_for(const std::shared_ptr<PendingCall>& call);
bool has_ended(const std::shared_ptr<PendingCall>& call);
std::shared_ptr<PendingCall> followed_by(std::shared_ptr<PendingCall> call, std::function<void()> step);
}  // namespace detail

/// What the …_async functions return: `Result` is void, at::Tensor or a vector of them. Until wait() has returned, the
/// program must neither read nor write the operation's tensors; the operation keeps them alive. Destroying the handle
/// neither waits nor cancels, and discards the error if there is one. Move-only; one thread at a time. A handle that
/// was moved from throws std::logic_error.
template <typename Result>
class [[nodiscard]] Pending {
 public:
  /// Called by the library; programs do not call it.
  Pending(std::shared_ptr<detail::PendingCall> call, Result result)
      : call_(std::move(call)), result_(std::move(result)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  /// Waits for the end and returns the result; on CUDA the result is ready for the current stream, not yet for the
  /// host. Throws as the operation without …_async does. Further calls return or throw the same at once.
  Result wait() {
    detail::wait_for(call_);
    return result_;
  }

  /// True when wait() would not block. Never blocks.
  bool is_done() const { return detail::has_ended(call_); }

  /// Returns a handle for this operation followed by `step`, with another result; this handle is then empty. The first
  /// wait() runs `step` with this operation's result, in the thread that calls wait() and without recording gradients.
  /// `step` runs only once, even if it throws.
  template <typename Next>
  Pending<Next> then(Next next, std::function<void(const Result&)> step) && {
    return {
        detail::followed_by(std::move(call_), [result = std::move(result_), step = std::move(step)] { step(result); }),
        std::move(next)};
  }

 private:
  std::shared_ptr<detail::PendingCall> call_;
  Result result_;
};

/// The handle of an operation without a result.
template <>
class [[nodiscard]] Pending<void> {
 public:
  explicit Pending(std::shared_ptr<detail::PendingCall> call) : call_(std::move(call)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  /// Waits for the end. Throws as the operation without …_async does; further calls return, or throw the same, at once.
  void wait() { detail::wait_for(call_); }
  /// True when wait() would not block. Never blocks.
  bool is_done() const { return detail::has_ended(call_); }

  /// This operation, followed by `step`, with a result; as Pending<Result>::then().
  template <typename Next>
  Pending<Next> then(Next next, std::function<void()> step) && {
    return {detail::followed_by(std::move(call_), std::move(step)), std::move(next)};
  }

 private:
  std::shared_ptr<detail::PendingCall> call_;
};

}  // namespace ddp
