#include "launcher/observe/watch/python_frames.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/utf8.h"
#include "launcher/observe/watch/python_layout.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::size_t kMaxPythonThreads = 256;
constexpr std::size_t kMaxFramesPerThread = 128;
constexpr std::uint64_t kMaxTextBytes = 1024;
constexpr std::uint64_t kMaxTableBytes = 1 << 20;

std::uint64_t word_at(const ReadMemory& read, std::uint64_t address) {
  std::uint64_t word = 0;
  return address != 0 && read(address, &word, sizeof word) ? word : 0;
}

void append_utf8(std::string& text, std::uint32_t character) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xc0 | character >> 6);
    put(0x80 | (character & 0x3f));
  } else if (character < 0x10000) {
    put(0xe0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  } else {
    put(0xf0 | (character >> 18 & 0x7));
    put(0x80 | (character >> 12 & 0x3f));
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  }
}

// Returns the text of a str object; "?" if it is not stored in one block.
std::string text_at(const ReadMemory& read, const PythonLayout& layout, std::uint64_t object) {
  std::uint32_t state = 0;
  if (object == 0 || !read(object + layout.text_state, &state, sizeof state)) return "?";
  const std::uint32_t kind = state >> 2 & 7;
  const bool is_compact = (state >> 5 & 1) != 0;
  const bool is_ascii = (state >> 6 & 1) != 0;
  const std::uint64_t length = std::min(word_at(read, object + layout.text_length), kMaxTextBytes);
  if (!is_compact || (kind != 1 && kind != 2 && kind != 4)) return "?";
  std::string bytes(length * kind, '\0');
  const std::uint64_t data = object + (is_ascii ? layout.ascii_size : layout.compact_size);
  if (!read(data, bytes.data(), bytes.size())) return "?";
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t character = 0;
    std::memcpy(&character, bytes.data() + i * kind, kind);
    append_utf8(text, character);
  }
  return printable(text);
}

std::string bytes_at(const ReadMemory& read, const PythonLayout& layout, std::uint64_t object) {
  const std::uint64_t size = std::min(word_at(read, object + layout.bytes_size), object == 0 ? 0 : kMaxTableBytes);
  std::string bytes(size, '\0');
  return read(object + layout.bytes_data, bytes.data(), bytes.size()) ? bytes : "";
}

// An instruction has 2 bytes.
std::int64_t offset_in_code(const ReadMemory& read, const PythonLayout& layout, std::uint64_t frame,
                            std::uint64_t code) {
  if (layout.minor < 11) {
    std::int32_t index = 0;
    return read(frame + layout.frame_instruction, &index, sizeof index) ? 2 * std::int64_t{index} : -1;
  }
  return static_cast<std::int64_t>(word_at(read, frame + layout.frame_instruction) - code - layout.code_instructions);
}

PythonFrame frame_at(const ReadMemory& read, const PythonLayout& layout, std::uint64_t frame, std::uint64_t code) {
  std::int32_t first_line = 0;
  read(code + layout.code_first_line, &first_line, sizeof first_line);
  const std::string table = bytes_at(read, layout, word_at(read, code + layout.code_lines));
  const std::int64_t offset = offset_in_code(read, layout, frame, code);
  return {.function = text_at(read, layout, word_at(read, code + layout.code_name)),
          .file = text_at(read, layout, word_at(read, code + layout.code_file)),
          .line = line_in(table, layout.minor, first_line, offset)};
}

std::vector<PythonFrame> frames_of(const ReadMemory& read, const PythonLayout& layout, std::uint64_t thread) {
  std::uint64_t frame = word_at(read, thread + layout.thread_frame);
  if (layout.frame_in_c_frame) frame = word_at(read, frame + *layout.frame_in_c_frame);
  std::vector<PythonFrame> frames;
  for (std::size_t i = 0; frame != 0 && i < 2 * kMaxFramesPerThread && frames.size() < kMaxFramesPerThread; ++i) {
    std::uint8_t owner = 0;
    // The interpreter inserts frames without code between frames of the program.
    if (layout.frame_owner) read(frame + *layout.frame_owner, &owner, sizeof owner);
    const std::uint64_t code = word_at(read, frame + layout.frame_code);
    if (owner < kOwnedByInterpreter && code != 0) frames.push_back(frame_at(read, layout, frame, code));
    frame = word_at(read, frame + layout.frame_previous);
  }
  return frames;
}

// Each byte has 6 bits of the number, lowest first.
std::int64_t variable_number(std::string_view table, std::size_t& at) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; at < table.size() && shift < 60; shift += 6) {
    const auto byte = static_cast<unsigned char>(table[at++]);
    number |= std::uint64_t{byte & 0x3fU} << shift;
    if ((byte & 0x40) == 0) break;
  }
  const auto size = static_cast<std::int64_t>(number >> 1);
  return (number & 1) != 0 ? -size : size;
}

int line_in_location_table(std::string_view table, std::int64_t line, std::int64_t offset) {
  constexpr unsigned kNoLine = 15;
  constexpr unsigned kLong = 14;
  constexpr unsigned kNoColumns = 13;
  constexpr unsigned kFirstOneLineKind = 10;
  std::int64_t begin = 0;
  for (std::size_t at = 0; at < table.size();) {
    const auto first = static_cast<unsigned char>(table[at++]);
    const unsigned kind = first >> 3 & 15;
    if (kind == kLong || kind == kNoColumns) {
      line += variable_number(table, at);
    } else if (kind >= kFirstOneLineKind && kind < kNoColumns) {
      line += kind - kFirstOneLineKind;
    }
    // Skips the columns: only the first byte of an entry has this bit set.
    while (at < table.size() && (static_cast<unsigned char>(table[at]) & 0x80) == 0) ++at;
    begin += 2 * (std::int64_t{first & 7} + 1);
    if (offset < begin) return kind == kNoLine ? 0 : static_cast<int>(std::clamp<std::int64_t>(line, 0, 1 << 30));
  }
  return 0;
}

int line_in_line_table(std::string_view table, std::int64_t line, std::int64_t offset) {
  constexpr int kNoLine = -128;
  std::int64_t begin = 0;
  for (std::size_t at = 0; at + 1 < table.size(); at += 2) {
    const int step = static_cast<signed char>(table[at + 1]);
    if (step != kNoLine) line += step;
    begin += static_cast<unsigned char>(table[at]);
    if (offset < begin) return step == kNoLine ? 0 : static_cast<int>(std::clamp<std::int64_t>(line, 0, 1 << 30));
  }
  return 0;
}

// True for "distributed_c10d.py" and other files in which torch.distributed handles a call of the program.
bool is_distributed(const PythonFrame& frame) {
  return frame.file.find("/torch/distributed/") != std::string::npos ||
         frame.file.ends_with("/torch/nn/parallel/distributed.py");
}

}  // namespace

int line_in(std::string_view table, int minor, int first_line, std::int64_t offset) {
  offset = std::max<std::int64_t>(offset, 0);
  return minor < 11 ? line_in_line_table(table, first_line, offset) : line_in_location_table(table, first_line, offset);
}

std::string PythonFrame::text() const {
  // The folder of an installation is not informative, so it is removed.
  std::string_view shown = file;
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const std::size_t at = shown.rfind(folder);
    if (at != std::string_view::npos) shown.remove_prefix(at + folder.size());
  }
  if (const std::size_t at = shown.rfind("/lib/python3."); at != std::string_view::npos) {
    shown.remove_prefix(std::min(shown.find('/', at + 5) + 1, shown.size()));
  }
  return function + " (" + std::string(shown) + (line > 0 ? ":" + std::to_string(line) : "") + ")";
}

bool PythonFrame::is_library() const {
  return file.starts_with("<frozen") || file.find("/ddprun/_") != std::string::npos ||
         file.find("/lib/python3") != std::string::npos || file.find("/site-packages/") != std::string::npos ||
         file.find("/dist-packages/") != std::string::npos;
}

PythonPlace place_of(const std::vector<PythonFrame>& frames) {
  PythonPlace place;
  const auto own = std::find_if_not(frames.begin(), frames.end(), [](const auto& each) { return each.is_library(); });
  if (own != frames.end()) place.line = own->text();
  // The outermost frame is the function that the program has called. c10d has a wrapper for each function, which logs.
  for (auto frame = frames.begin(); frame != own; ++frame) {
    if (is_distributed(*frame) && !frame->file.ends_with("/c10d_logger.py")) place.call = frame->function;
    if (frame->file.ends_with("/torch/autograd/graph.py")) place.call = "backward";
  }
  if (const std::size_t dot = place.call.rfind('.'); dot != std::string::npos) place.call.erase(0, dot + 1);
  return place;
}

std::map<std::int64_t, std::vector<PythonFrame>> python_frames(const ReadMemory& read, std::uint64_t runtime, int minor,
                                                               std::int64_t main) {
  const auto layout = python_layout(read, runtime, minor);
  if (!layout) return {};
  std::map<std::int64_t, std::vector<PythonFrame>> found;
  const std::uint64_t interpreter = word_at(read, runtime + layout->runtime_interpreter);
  std::uint64_t thread = interpreter == 0 ? 0 : word_at(read, interpreter + layout->interpreter_threads);
  for (std::size_t i = 0; thread != 0 && i < kMaxPythonThreads; ++i) {
    const std::uint64_t next = word_at(read, thread + layout->thread_next);
    if (layout->thread_number) {
      const auto number = static_cast<std::int64_t>(word_at(read, thread + *layout->thread_number));
      found[number] = frames_of(read, *layout, thread);
    } else if (next == 0) {
      // New threads are inserted before the others.
      found[main] = frames_of(read, *layout, thread);
    }
    thread = next;
  }
  return found;
}

}  // namespace launcher
