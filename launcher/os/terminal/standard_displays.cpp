#include "launcher/os/terminal/standard_displays.h"

#include <unistd.h>

namespace launcher {
namespace {

std::unique_ptr<LiveDisplay> make_display(EventLoop& loop, int terminal, StreamWriter& writer, pid_t own_group,
                                          LiveDisplay::Rows rows) {
  if (!LiveDisplay::is_possible(terminal)) return nullptr;
  return std::make_unique<LiveDisplay>(loop, terminal, own_group, writer, std::move(rows));
}

}  // namespace

StandardDisplays::StandardDisplays(EventLoop& loop, StreamWriter& output, StreamWriter* error, pid_t own_group,
                                   const RowsOf& rows_of)
    : output_(make_display(loop, STDOUT_FILENO, output, own_group,
                           [this, rows_of](std::size_t columns) { return rows_of(output_.get(), columns); })) {
  if (error != nullptr) {
    own_error_ = make_display(loop, STDERR_FILENO, *error, own_group,
                              [this, rows_of](std::size_t columns) { return rows_of(own_error_.get(), columns); });
  }
  error_ = error != nullptr ? own_error_.get() : output_.get();
}

void StandardDisplays::for_each(const std::function<void(LiveDisplay&)>& action) const {
  if (output_) action(*output_);
  if (own_error_) action(*own_error_);
}

}  // namespace launcher
