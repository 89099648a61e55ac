// The progress page that one rank shares with ddprun: memory without a name, which is gone with those who have it.
#pragma once

#include <utility>

#include "base/progress/page.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

class RankPage {
 public:
  // Without a page where the kernel has no memory files; then the rank is seen from outside only.
  RankPage();
  ~RankPage();
  RankPage(RankPage&& other) noexcept : page_(std::exchange(other.page_, nullptr)), fd_(std::move(other.fd_)) {}
  RankPage& operator=(RankPage&&) = delete;
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;

  // For the rank alone; -1 when there is no page, and once close_descriptor() was called.
  int descriptor() const { return fd_.get(); }
  void close_descriptor() { fd_.reset(); }

  // Null when there is no page.
  const ddp::detail::Page* page() const { return page_; }

 private:
  ddp::detail::Page* page_ = nullptr;
  UniqueFd fd_;
};

}  // namespace launcher
