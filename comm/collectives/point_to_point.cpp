#include <optional>
#include <utility>

#include "comm/backends/pair_exchange.h"
#include "comm/collectives/begin.h"
#include "comm/collectives/collective_call.h"
#include "comm/group/argument_checks.h"
#include "comm/group/group_state.h"
#include "ddprun/comm/collectives.h"

namespace ddp {
namespace {

using detail::Started;

const char* name(Message::Direction direction) {
  return direction == Message::Direction::kSend ? "send" : "recv";
}

void check_tag(int tag, const GroupHandle& group, const char* operation) {
  if (tag < 0) detail::refuse(group, operation, "expected a tag of at least 0, got " + std::to_string(tag));
  if (tag == detail::kPairExchangeTag)
    detail::refuse(group, operation, "tag " + std::to_string(tag) + " is reserved for the library: use a smaller one");
}

void check(const Message& message, const GroupHandle& group, const char* operation) {
  detail::check_message(message.tensor, group, operation);
  detail::check_rank(message.peer, "peer", group, operation);
  if (message.peer == group.rank()) {
    detail::refuse(group, operation,
                   "peer " + std::to_string(message.peer) + " is the calling rank itself: copy the tensor");
  }
  const BackendTraits* backend = detail::backend_for(group, message.tensor.device());
  if (!message.tensor.is_cpu() && !backend->sends_on_device) {
    detail::refuse(group, operation,
                   backend->title + "'s point-to-point operations support CPU tensors only, got a " +
                       detail::describe(message.tensor) + ": use NCCL, or send .cpu()");
  }
  check_tag(message.tag, group, operation);
}

std::string with(const Message& message) {
  return (message.direction == Message::Direction::kSend ? "to rank " : "from rank ") + std::to_string(message.peer) +
         ", tag " + std::to_string(message.tag);
}

// c10d's calls take no timeout, and to wait with one would block the host on NCCL.
std::optional<std::chrono::milliseconds> wait_limit(const at::Tensor& tensor, const CollectiveOptions& options) {
  return tensor.is_cpu() ? options.timeout : std::nullopt;
}

// Some backends, such as NCCL, start a list of messages as one call. The others start each message separately, without
// blocking.
Started begin_coalesced(const std::vector<Message>& messages, const GroupHandle& group) {
  detail::Call call{.operation = "batch_send_recv", .is_collective = false};
  for (const Message& message : messages) {
    call.how += (call.how.empty() ? "" : "; ") + with(message);
    call.tensors.push_back(message.tensor);
  }
  return detail::start(std::move(call), group, [&](c10d::ProcessGroup& c10d) {
    const auto backend = c10d.getBackend(c10::kCUDA);
    backend->startCoalescing();
    for (const Message& message : messages) {
      std::vector<at::Tensor> tensors{message.tensor.detach()};
      message.direction == Message::Direction::kSend ? backend->send(tensors, message.peer, message.tag)
                                                     : backend->recv(tensors, message.peer, message.tag);
    }
    return backend->endCoalescing();
  });
}

bool is_coalesced(const Message& message, const GroupHandle& group) {
  return !message.tensor.is_cpu() && detail::backend_for(group, message.tensor.device())->coalesces_messages;
}

}  // namespace

namespace detail {

Started begin_message(const Message& message, const GroupHandle& group, const BeginOptions& begin) {
  const char* const operation = begin.name(name(message.direction));
  check_wait(begin.options, group, operation);
  check(message, group, operation);
  std::vector<at::Tensor> tensors{message.tensor.detach()};
  return start(
      {.operation = operation, .how = with(message), .tensors = {message.tensor}, .is_collective = false}, group,
      [&](c10d::ProcessGroup& c10d) {
        return message.direction == Message::Direction::kSend ? c10d.send(tensors, message.peer, message.tag)
                                                              : c10d.recv(tensors, message.peer, message.tag);
      },
      {}, wait_limit(message.tensor, begin.options));
}

}  // namespace detail

Message send_to(int peer, at::Tensor tensor, int tag) {
  return {.direction = Message::Direction::kSend, .tensor = std::move(tensor), .peer = peer, .tag = tag};
}

Message receive_from(int peer, at::Tensor tensor, int tag) {
  return {.direction = Message::Direction::kReceive, .tensor = std::move(tensor), .peer = peer, .tag = tag};
}

Pending<void> send_async(const at::Tensor& tensor, int to, const GroupHandle& group, int tag,
                         const CollectiveOptions& options) {
  return batch_send_recv_async({send_to(to, tensor, tag)}, group, options);
}

void send(const at::Tensor& tensor, int to, const GroupHandle& group, int tag, const CollectiveOptions& options) {
  send_async(tensor, to, group, tag, options).wait();
}

Pending<void> recv_async(at::Tensor tensor, int from, const GroupHandle& group, int tag,
                         const CollectiveOptions& options) {
  return batch_send_recv_async({receive_from(from, std::move(tensor), tag)}, group, options);
}

void recv(at::Tensor tensor, int from, const GroupHandle& group, int tag, const CollectiveOptions& options) {
  recv_async(std::move(tensor), from, group, tag, options).wait();
}

int recv_any(at::Tensor tensor, const GroupHandle& group, int tag, const CollectiveOptions& options) {
  detail::check_message(tensor, group, "recv_any");
  if (!detail::backend_for(group, tensor.device())->receives_from_any) {
    detail::refuse(group, "recv_any", "only gloo can receive from any rank, not backend '" + group.backend() + "'");
  }
  check_tag(tag, group, "recv_any");
  detail::check_wait(options, group, "recv_any");
  detail::WorkPtr work;
  std::vector<at::Tensor> tensors{tensor.detach()};
  detail::start(
      {.operation = "recv_any", .how = "tag " + std::to_string(tag), .tensors = {tensor}, .is_collective = false},
      group,
      [&](c10d::ProcessGroup& c10d) {
        work = c10d.recvAnysource(tensors, tag);
        return work;
      },
      {}, wait_limit(tensor, options))
      ->wait();
  return work->sourceRank();
}

Pending<void> batch_send_recv_async(const std::vector<Message>& messages, const GroupHandle& group,
                                    const CollectiveOptions& options) {
  if (messages.empty()) static_cast<void>(group.state().group("batch_send_recv"));  // throws when the group is closed
  for (const Message& message : messages) {
    detail::check_wait(options, group, name(message.direction));
    check(message, group, name(message.direction));
  }
  std::vector<Started> started;
  std::vector<Message> coalesced;
  for (const Message& message : messages) {
    if (messages.size() > 1 && is_coalesced(message, group)) {
      coalesced.push_back(message);
    } else {
      started.push_back(detail::begin_message(message, group, {.options = options}));
    }
  }
  if (!coalesced.empty()) started.push_back(begin_coalesced(coalesced, group));
  return Pending<void>(detail::all_of(std::move(started)));
}

void batch_send_recv(const std::vector<Message>& messages, const GroupHandle& group, const CollectiveOptions& options) {
  batch_send_recv_async(messages, group, options).wait();
}

}  // namespace ddp
