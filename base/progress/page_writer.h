// Writes a progress page. Everything is wait-free and makes no system call; any thread may call it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include <ddprun/base/progress.h>

#include "base/progress/page.h"

namespace ddp::detail {

using PageGroup = std::uint32_t;

struct CollectiveFlags {
  bool is_message = false;
  bool has_ended = false;  // at once; PageWriter::reopen_collective() where it turns out not to have
};

class PageWriter {
 public:
  // `page` is zero but for its greeting, and must outlive this.
  explicit PageWriter(Page& page) noexcept;

  // Enters a phase; returns what was there, for restore_phase().
  unsigned enter_phase(progress::Phase phase) noexcept;
  unsigned enter_phase(std::string_view name) noexcept;
  void restore_phase(unsigned phase) noexcept { change_phase(phase >> 8, phase & 0xff); }
  void finish_step() noexcept;
  // The rank has waited for others in the phase that it is in.
  void add_wait(std::uint64_t microseconds) noexcept;
  // Collectives beside which the rank computes on. Once it has waited for all of them, the time from the begin of the
  // last one to the end of the last one is what it has waited.
  void begin_background(std::uint64_t now) noexcept { background_begin_.store(now, std::memory_order_relaxed); }
  void end_background(std::uint64_t now) noexcept { background_end_.store(now, std::memory_order_relaxed); }
  void settle_background() noexcept;
  void set_value(std::string_view name, double number) noexcept;

  // Groups beyond the 32nd are counted as the last one.
  PageGroup add_group(std::string_view path, int rank, int size, int leader) noexcept;
  // Returns what finish_collective() wants. `signature` is what all ranks must call in this place.
  std::uint64_t begin_collective(PageGroup group, std::uint64_t number, std::string_view signature,
                                 std::uint64_t now = page_clock(), CollectiveFlags kind = {}) noexcept;
  // Both without effect when a thousand others have begun since. `time`: of its begin.
  void reopen_collective(std::uint64_t index, std::uint64_t time) noexcept;
  void finish_collective(std::uint64_t index, std::uint64_t now = page_clock()) noexcept;

  Page& page() noexcept { return page_; }

 private:
  unsigned change_phase(unsigned kind, unsigned name) noexcept;
  void write_step_totals(std::uint64_t steps, std::uint64_t now) noexcept;

  Page& page_;
  std::atomic<std::uint32_t> groups_{0};
  std::atomic<std::uint32_t> names_{0};
  std::atomic<std::uint32_t> values_{0};
  std::atomic<std::uint64_t> totals_time_{0};  // when the totals were written
  std::atomic<std::uint64_t> background_begin_{0};
  std::atomic<std::uint64_t> background_end_{0};
};

}  // namespace ddp::detail
