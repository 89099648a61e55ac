#include "launcher/os/system/parked_descriptors.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

// The kernel accepts up to 253 descriptors in one message. A small number is not worth a message.
constexpr std::size_t kBatch = 128;
using Control = std::array<char, CMSG_SPACE(kBatch * sizeof(int))>;

}  // namespace

void ParkedDescriptors::park(UniqueFd& fd) {
  batch_.push_back(&fd);
  if (batch_.size() == kBatch) park_batch();
}

void ParkedDescriptors::park_batch() {
  std::vector<UniqueFd*> batch = std::exchange(batch_, {});
  if (is_refused_) return;  // they stay in the table, which is only slower
  if (!sender_) {
    std::array<int, 2> pair{-1, -1};
    is_refused_ = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0;
    sender_.reset(pair[0]);
    receiver_.reset(pair[1]);
  }
  std::array<int, kBatch> numbers{};
  for (std::size_t i = 0; i < kBatch; ++i) numbers[i] = batch[i]->get();
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof numbers);
  std::memcpy(CMSG_DATA(header), numbers.data(), sizeof numbers);
  if (is_refused_ || ::sendmsg(sender_.get(), &message, MSG_NOSIGNAL) != 1) {
    is_refused_ = true;
    return;
  }
  for (UniqueFd* fd : batch) fd->reset();
  parked_.push_back(std::move(batch));
}

void ParkedDescriptors::take_back() {
  for (const std::vector<UniqueFd*>& batch : std::exchange(parked_, {})) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) Control control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t received = ::recvmsg(receiver_.get(), &message, MSG_CMSG_CLOEXEC);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    std::array<int, kBatch> numbers{};
    std::size_t count = 0;
    if (received == 1 && header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
      std::memcpy(numbers.data(), CMSG_DATA(header), bytes);
      count = bytes / sizeof(int);
    }
    for (std::size_t i = 0; i < count; ++i) batch[i]->reset(numbers[i]);
    if (count < batch.size())
      throw LaunchError("too few file descriptors for the output of all ranks; raise the limit with ulimit -n");
  }
  batch_.clear();
  sender_.reset();
  receiver_.reset();
}

}  // namespace launcher
