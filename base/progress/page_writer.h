// Writes a progress page. All functions are wait-free, make no system call, and may be called by any thread.
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
  bool has_ended = false;  // it ends immediately; see PageWriter::reopen_collective() if it turns out to be unfinished
};

class PageWriter {
 public:
  // `page` must be zero except for its greeting, and must outlive this object.
  explicit PageWriter(Page& page) noexcept;

  // Enters a phase and returns the previous one, for restore_phase().
  unsigned enter_phase(progress::Phase phase) noexcept;
  unsigned enter_phase(std::string_view name) noexcept;
  void restore_phase(unsigned phase) noexcept { change_phase(phase >> 8, phase & 0xff); }
  void finish_step() noexcept;
  // Adds time in which the rank waited for other ranks, to the current phase.
  void add_wait(std::uint64_t microseconds) noexcept;
  // For collectives that overlap with computation. settle_background() is called after the rank has waited for all of
  // them, and counts the time from the last start to the last end as waiting time.
  void begin_background(std::uint64_t now) noexcept { background_begin_.store(now, std::memory_order_relaxed); }
  void end_background(std::uint64_t now) noexcept { background_end_.store(now, std::memory_order_relaxed); }
  void settle_background() noexcept;
  void set_value(std::string_view name, double number) noexcept;

  // All groups beyond the 32nd share the last entry.
  PageGroup add_group(std::string_view path, int rank, int size, int leader) noexcept;
  // Returns the index for finish_collective(). `signature` describes the call, which must be the same on all ranks.
  std::uint64_t begin_collective(PageGroup group, std::uint64_t number, std::string_view signature,
                                 std::uint64_t now = page_clock(), CollectiveFlags kind = {}) noexcept;
  // These two have no effect if about a thousand other collectives have begun since. `time` is the start of the
  // collective.
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
  std::atomic<std::uint64_t> totals_time_{0};  // the time of the last write_step_totals()
  std::atomic<std::uint64_t> background_begin_{0};
  std::atomic<std::uint64_t> background_end_{0};
};

}  // namespace ddp::detail
