// All operations between ranks. Every rank of the group must call the same ones in the same order, from one thread at a
// time, with the same shapes, dtypes and settings unless a function says otherwise. The rules for messages between two
// ranks and for texts differ: see send() and broadcast_string(). Overview: docs/collectives.md.
//
// Tensors must be dense, contiguous and on a device for which the group has a backend. The caller owns them and must
// not read or write them during the call. On CUDA the result is ready for the current stream, not yet for the host.
// When a peer fails, calls something else or is late, the functions throw std::runtime_error, which names the
// operation, this rank and the ranks that differ. They throw std::invalid_argument for arguments that are wrong on this
// rank, such as a timeout that is not above 0. After an exception the contents of output tensors are unspecified.
// Reference: torch.distributed.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// How a reduction combines the ranks' values. kAvg divides the sum by the group's size and needs a floating-point or
/// complex dtype. For bool tensors, kSum and kMax mean "any", and kProduct and kMin mean "all". Complex tensors support
/// only kSum and kAvg.
enum class ReduceOp { kSum, kAvg, kProduct, kMin, kMax };

/// Settings of one collective call.
struct CollectiveOptions {
  /// Longest wait for the other ranks; default: the group's timeout. On NCCL the call does not block, and the group's
  /// watchdog enforces the group's timeout instead.
  std::optional<std::chrono::milliseconds> timeout{};
};

/// Returns when every rank of the group has called it. Blocks the calling thread; if NCCL is the only backend, until
/// the GPU has reached the barrier. On timeout, gloo throws a std::runtime_error that names the missing ranks.
void barrier(const GroupHandle& group, const CollectiveOptions& options = {});

/// Replaces `tensor` on every rank by the combination of all ranks' values.
void all_reduce(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                const CollectiveOptions& options = {});
/// As all_reduce(), but returns at once: Pending::wait() waits for its end.
Pending<void> all_reduce_async(at::Tensor tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                               const CollectiveOptions& options = {});

/// all_reduce() of a whole list in one message per dtype and device. Non-contiguous tensors are allowed; every rank
/// needs the same list. From three ranks on the order of summation, and so the last bit, may differ from that of single
/// calls.
void all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                          ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});
/// As all_reduce_coalesced(), but returns at once: Pending::wait() waits for its end.
Pending<void> all_reduce_coalesced_async(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                         ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});

/// Like all_reduce(), but only rank `root` gets the result; the other ranks' tensors are left unspecified.
void reduce(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
            const CollectiveOptions& options = {});
/// As reduce(), but returns at once: Pending::wait() waits for its end.
Pending<void> reduce_async(at::Tensor tensor, int root, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                           const CollectiveOptions& options = {});

/// Combines `tensor`, of shape (group.size() * n, S…), over all ranks and returns this rank's part, of shape (n, S…):
/// rows rank * n to rank * n + n. `tensor` is not changed.
at::Tensor reduce_scatter(const at::Tensor& tensor, const GroupHandle& group, ReduceOp op = ReduceOp::kSum,
                          const CollectiveOptions& options = {});
/// As reduce_scatter(), but returns at once: Pending::wait() gives the result.
Pending<at::Tensor> reduce_scatter_async(const at::Tensor& tensor, const GroupHandle& group,
                                         ReduceOp op = ReduceOp::kSum, const CollectiveOptions& options = {});

/// In place: replaces `value` on every rank by the mean over all ranks (`average`) or their sum, and returns it. To
/// keep `value`, use reduce_tensor(). `value` has any shape and, for the mean, a floating-point dtype. Records no
/// gradient. Every rank of the group must call it; throws as all_reduce() does.
at::Tensor reduce_value(at::Tensor value, const GroupHandle& group, bool average = true);

/// Returns the mean over all ranks (`average`) or their sum as a new tensor, and does not change `value`
/// (reduce_value() does). `value` need not be contiguous. Otherwise the same as reduce_value().
at::Tensor reduce_tensor(const at::Tensor& value, const GroupHandle& group, bool average = true);

/// Overwrites `tensor` on every rank with rank `root`'s values.
void broadcast(at::Tensor tensor, int root, const GroupHandle& group, const CollectiveOptions& options = {});
/// As broadcast(), but returns at once: Pending::wait() waits for its end.
Pending<void> broadcast_async(at::Tensor tensor, int root, const GroupHandle& group,
                              const CollectiveOptions& options = {});

/// Overwrites all `tensors` with those of rank `root`, packed into messages of at most `buffer_bytes`. Non-contiguous
/// tensors are allowed. All ranks need the same list.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, int root, const GroupHandle& group,
                         int64_t buffer_bytes = int64_t{250} << 20);

/// Returns every rank's `tensor`, of shape S, as one new tensor of shape (group.size(), S…), in rank order.
at::Tensor all_gather(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options = {});
/// As all_gather(), but returns at once: Pending::wait() gives the result.
Pending<at::Tensor> all_gather_async(const at::Tensor& tensor, const GroupHandle& group,
                                     const CollectiveOptions& options = {});

/// all_gather() of a whole list in one message per dtype and device: element i of the result is what all_gather() makes
/// of tensors[i]. Non-contiguous tensors are allowed.
std::vector<at::Tensor> all_gather_coalesced(const std::vector<at::Tensor>& tensors, const GroupHandle& group,
                                             const CollectiveOptions& options = {});

/// Returns every rank's `tensor`, in rank order. Its shape is (n, S…), where n may differ from rank to rank and be 0.
/// The shapes are exchanged first: if dtypes or other dimensions differ, every rank throws an error that names two
/// ranks. The cost is that of gathering the longest tensor from every rank.
std::vector<at::Tensor> all_gather_uneven(const at::Tensor& tensor, const GroupHandle& group,
                                          const CollectiveOptions& options = {});

/// As all_gather_uneven(), but returns when the shapes have been exchanged: Pending::wait() gives the result.
Pending<std::vector<at::Tensor>> all_gather_uneven_async(const at::Tensor& tensor, const GroupHandle& group,
                                                         const CollectiveOptions& options = {});

/// On rank `root`, returns every rank's `tensor`, of shape S, as one new tensor of shape (group.size(), S…). On the
/// other ranks, returns an undefined tensor. All ranks must call it.
at::Tensor gather(const at::Tensor& tensor, int root, const GroupHandle& group, const CollectiveOptions& options = {});
/// As gather(), but returns at once: Pending::wait() gives the result.
Pending<at::Tensor> gather_async(const at::Tensor& tensor, int root, const GroupHandle& group,
                                 const CollectiveOptions& options = {});

/// Overwrites `tensor` on rank i with rank `root`'s parts[i]. All ranks must call it. Only `root` reads `parts`, which
/// needs one tensor per rank, each of the shape and dtype of `tensor`.
void scatter(at::Tensor tensor, const std::vector<at::Tensor>& parts, int root, const GroupHandle& group,
             const CollectiveOptions& options = {});
/// As scatter(), but returns at once: Pending::wait() waits for its end.
Pending<void> scatter_async(at::Tensor tensor, const std::vector<at::Tensor>& parts, int root, const GroupHandle& group,
                            const CollectiveOptions& options = {});

/// Sends rows i * n to i * n + n of `tensor`, of shape (group.size() * n, S…), to rank i. Returns a tensor of the same
/// shape: the rows that all ranks sent to this rank, in rank order.
at::Tensor all_to_all(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options = {});
/// As all_to_all(), but returns at once: Pending::wait() gives the result.
Pending<at::Tensor> all_to_all_async(const at::Tensor& tensor, const GroupHandle& group,
                                     const CollectiveOptions& options = {});

/// The result of all_to_all_uneven().
struct UnevenParts {
  at::Tensor tensor{};            ///< (sum of counts, S…)
  std::vector<int64_t> counts{};  ///< how many rows each rank sent
};

/// Sends the next counts[i] rows of `tensor` to rank i, in rank order; the counts may be 0 and must add up to the first
/// dimension. A small message with the counts is exchanged first. If dtypes or other dimensions differ, every rank
/// throws an error that names two ranks.
UnevenParts all_to_all_uneven(const at::Tensor& tensor, const std::vector<int64_t>& counts, const GroupHandle& group,
                              const CollectiveOptions& options = {});

/// Sends inputs[i] to rank i and overwrites outputs[i] with what rank i sent. One tensor per rank in each list; all of
/// one dtype and device; shapes are free, but outputs[i] must be as large as rank i's part for this rank.
void all_to_all(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const GroupHandle& group,
                const CollectiveOptions& options = {});

/// Sends `tensor` to rank `to`, which calls recv() with the same shape, dtype and tag; no other rank is involved.
/// Returns when `tensor` may be changed again (CUDA: on the current stream), which may be before the peer receives it;
/// two ranks that both send first may wait for each other: use batch_send_recv().
///
/// On gloo, tensors must be on the CPU, and a tag distinguishes the messages of one pair of ranks, which may be
/// received in any order of tags. NCCL ignores tags and matches the messages of a pair in order. Throws
/// std::runtime_error, naming rank, peer and tag, when the peer fails or is late, and std::invalid_argument for wrong
/// arguments, such as a message to the rank itself. The functions for messages below throw the same.
void send(const at::Tensor& tensor, int to, const GroupHandle& group, int tag = 0,
          const CollectiveOptions& options = {});
/// As send(), but returns at once: Pending::wait() waits for its end.
Pending<void> send_async(const at::Tensor& tensor, int to, const GroupHandle& group, int tag = 0,
                         const CollectiveOptions& options = {});

/// Overwrites `tensor` with what rank `from` sends.
void recv(at::Tensor tensor, int from, const GroupHandle& group, int tag = 0, const CollectiveOptions& options = {});
/// As recv(), but returns at once: Pending::wait() waits for its end.
Pending<void> recv_async(at::Tensor tensor, int from, const GroupHandle& group, int tag = 0,
                         const CollectiveOptions& options = {});

/// Overwrites `tensor` with the next message of any rank under `tag` and returns that rank. gloo only.
int recv_any(at::Tensor tensor, const GroupHandle& group, int tag = 0, const CollectiveOptions& options = {});

/// One message of batch_send_recv().
struct Message {
  /// Whether this rank sends or receives.
  enum class Direction { kSend, kReceive };
  Direction direction{};  ///< what this rank does
  at::Tensor tensor{};    ///< what is sent, or overwritten by what is received
  int peer = 0;           ///< the other rank
  int tag = 0;            ///< as in send()
};
/// The message that sends `tensor` to rank `peer`.
Message send_to(int peer, at::Tensor tensor, int tag = 0);
/// The message that overwrites `tensor` with what rank `peer` sends.
Message receive_from(int peer, at::Tensor tensor, int tag = 0);

/// Starts all `messages` at once, so that ranks which send to each other cannot block each other (torch.distributed's
/// batch_isend_irecv); one NCCL call. Every rank named in the list must have the counterpart in its own call; with NCCL
/// all ranks of the group must take part in the first one.
void batch_send_recv(const std::vector<Message>& messages, const GroupHandle& group,
                     const CollectiveOptions& options = {});
/// As batch_send_recv(), but returns at once: Pending::wait() waits for its end.
Pending<void> batch_send_recv_async(const std::vector<Message>& messages, const GroupHandle& group,
                                    const CollectiveOptions& options = {});

/// Returns rank `root`'s text on every rank; the argument of the other ranks is ignored. Texts may have any length and
/// contain any byte. They are sent by the CPU's backend if the group has one. Every rank of the group must call it;
/// throws as all_reduce() does. This holds for the functions below as well.
std::string broadcast_string(const std::string& text, int root, const GroupHandle& group);

/// Every rank's text, in rank order, on every rank.
std::vector<std::string> all_gather_strings(const std::string& text, const GroupHandle& group);

/// Every rank's text, in rank order, on rank `root`; an empty list on the other ranks.
std::vector<std::string> gather_strings(const std::string& text, int root, const GroupHandle& group);

/// Text i of rank `root`'s list on rank i; the other ranks' lists are ignored. Throws std::invalid_argument on `root`
/// if the list does not have one text per rank.
std::string scatter_string(const std::vector<std::string>& texts, int root, const GroupHandle& group);

/// Sends a list of texts, of any number, lengths and bytes, to rank `to`, which calls recv_strings() with the same tag.
/// The rules and errors are send()'s.
void send_strings(const std::vector<std::string>& texts, int to, const GroupHandle& group, int tag = 0);
/// The list of texts that rank `from` sends by send_strings() with the same tag.
std::vector<std::string> recv_strings(int from, const GroupHandle& group, int tag = 0);

/// Rank `root`'s JSON value on every rank. `Json` is a class with dump() and a static parse(std::string), such as
/// nlohmann::json; what its parse() throws passes through.
template <typename Json>
Json broadcast_json(const Json& value, int root, const GroupHandle& group) {
  return Json::parse(broadcast_string(group.rank() == root ? value.dump() : "", root, group));
}

/// Every rank's JSON value, in rank order, on every rank; `Json` as for broadcast_json().
template <typename Json>
std::vector<Json> all_gather_json(const Json& value, const GroupHandle& group) {
  std::vector<Json> values;
  for (const std::string& text : all_gather_strings(value.dump(), group)) values.push_back(Json::parse(text));
  return values;
}

/// Every rank's JSON value, in rank order, on rank `root`; an empty list on the other ranks. `Json` as for
/// broadcast_json().
template <typename Json>
std::vector<Json> gather_json(const Json& value, int root, const GroupHandle& group) {
  std::vector<Json> values;
  for (const std::string& text : gather_strings(value.dump(), root, group)) values.push_back(Json::parse(text));
  return values;
}

/// Value i of rank `root`'s list on rank i; the other ranks' lists are ignored. `Json` as for broadcast_json(); throws
/// as scatter_string().
template <typename Json>
Json scatter_json(const std::vector<Json>& values, int root, const GroupHandle& group) {
  std::vector<std::string> texts;
  if (group.rank() == root) {
    for (const Json& value : values) texts.push_back(value.dump());
  }
  return Json::parse(scatter_string(texts, root, group));
}

/// Sends a list of JSON values to rank `to`, which calls recv_json() with the same tag; as send_strings().
template <typename Json>
void send_json(const std::vector<Json>& values, int to, const GroupHandle& group, int tag = 0) {
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(value.dump());
  send_strings(texts, to, group, tag);
}

/// The list of JSON values that rank `from` sends by send_json() with the same tag; `Json` as for broadcast_json().
template <typename Json>
std::vector<Json> recv_json(int from, const GroupHandle& group, int tag = 0) {
  std::vector<Json> values;
  for (const std::string& text : recv_strings(from, group, tag)) values.push_back(Json::parse(text));
  return values;
}

}  // namespace ddp
