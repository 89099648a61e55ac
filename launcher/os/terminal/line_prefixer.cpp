#include "launcher/os/terminal/line_prefixer.h"

#include "base/utf8.h"

namespace launcher {

// `line` ends with a newline and contains no other. Carriage returns in it end lines, too, but "\r\n" is one line end.
void LinePrefixer::emit_line(std::string_view line, std::string& out) {
  while (true) {
    const std::size_t carriage_return = line.find('\r');
    if (carriage_return == std::string_view::npos || carriage_return + 2 >= line.size()) break;
    emit(line.substr(0, carriage_return + 1), out);
    line.remove_prefix(carriage_return + 1);
  }
  emit(line, out);
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      keep(bytes, out);
      return;
    }
    const std::string_view line = bytes.substr(0, newline + 1);
    if (partial_.empty() && line.size() <= kMaxLineBytes) {
      emit_line(line, out);
    } else {
      keep(line.substr(0, newline), out);
      partial_.push_back('\n');
      emit_line(partial_, out);
      partial_.clear();
    }
    bytes.remove_prefix(newline + 1);
  }
}

// Appends to the incomplete line, and passes on its complete part: up to the last carriage return (unless that may be
// the first half of "\r\n"), and full pieces of an overlong line.
void LinePrefixer::keep(std::string_view rest, std::string& out) {
  while (true) {
    const std::size_t room = kMaxLineBytes - partial_.size();
    const std::string_view taken = rest.substr(0, room);
    const bool has_return =
        (!partial_.empty() && partial_.back() == '\r' && !taken.empty()) || taken.find('\r') != std::string_view::npos;
    partial_.append(taken);
    rest.remove_prefix(taken.size());
    if (has_return) {
      std::size_t begin = 0;
      for (std::size_t end = partial_.find('\r'); end != std::string::npos && end + 1 < partial_.size();
           end = partial_.find('\r', begin)) {
        emit(std::string_view(partial_).substr(begin, end + 1 - begin), out);
        begin = end + 1;
      }
      partial_.erase(0, begin);
    }
    if (rest.empty()) return;
    if (partial_.size() < kMaxLineBytes) continue;
    // A piece must not end within a character, because its UTF-8 would become invalid.
    const std::size_t piece = ddp::detail::whole_characters(partial_);
    emit(std::string_view(partial_).substr(0, piece), out);
    out.append(kContinues);
    partial_.erase(0, piece);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (!partial_.empty()) emit(partial_, out);
  partial_.clear();
}

}  // namespace launcher
