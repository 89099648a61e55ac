// Messages between two ranks. The sender calls send(), the receiver recv() with the same shape, dtype and tag; nobody
// else is involved. On gloo a tag keeps messages of one pair apart and they may be received in any order of tags; NCCL
// knows no tags and matches a pair's messages in order.
//
// Tensors: dense, contiguous, owned by the caller; on gloo those of the CPU only. Throw std::runtime_error naming rank,
// peer and tag when the peer fails or is late, std::invalid_argument for wrong arguments, among them a message to the
// rank itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <ddprun/comm/collective_options.h>
#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Sends `tensor` to rank `to`. Returns when `tensor` may be changed again (CUDA: on the current stream), which may be
/// before the peer receives it; two ranks that both send first may wait for each other: use batch_send_recv().
void send(const at::Tensor& tensor, int to, const GroupHandle& group, int tag = 0,
          const CollectiveOptions& options = {});
Pending<void> send_async(const at::Tensor& tensor, int to, const GroupHandle& group, int tag = 0,
                         const CollectiveOptions& options = {});

/// Overwrites `tensor` with what rank `from` sends.
void recv(at::Tensor tensor, int from, const GroupHandle& group, int tag = 0, const CollectiveOptions& options = {});
Pending<void> recv_async(at::Tensor tensor, int from, const GroupHandle& group, int tag = 0,
                         const CollectiveOptions& options = {});

/// Overwrites `tensor` with the next message of any rank under `tag` and returns that rank. gloo only.
int recv_any(at::Tensor tensor, const GroupHandle& group, int tag = 0, const CollectiveOptions& options = {});

/// One message of batch_send_recv().
struct Message {
  enum class Direction { kSend, kReceive };
  Direction direction{};
  at::Tensor tensor{};
  int peer = 0;
  int tag = 0;
};
Message send_to(int peer, at::Tensor tensor, int tag = 0);
Message receive_from(int peer, at::Tensor tensor, int tag = 0);

/// Starts all `messages` at once, so that ranks which send to each other cannot block each other (torch.distributed's
/// batch_isend_irecv); one NCCL call. Every rank named in the list must have the counterpart in its own call; with NCCL
/// all ranks of the group must take part in the first one.
void batch_send_recv(const std::vector<Message>& messages, const GroupHandle& group,
                     const CollectiveOptions& options = {});
Pending<void> batch_send_recv_async(const std::vector<Message>& messages, const GroupHandle& group,
                                    const CollectiveOptions& options = {});

}  // namespace ddp
