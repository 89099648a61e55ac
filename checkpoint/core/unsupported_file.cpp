#include "checkpoint/core/unsupported_file.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp {
namespace {

using namespace std::string_view_literals;

constexpr size_t kInspectedBytes = 4096;

constexpr const char* kDistributed =
    "of torch.distributed.checkpoint (DCP): give the folder that holds its .metadata, or convert that in Python with "
    "torch.distributed.checkpoint.format_utils.dcp_to_torch_save(folder, 'model.pt')";

struct Beginning {
  std::string_view bytes;
  std::string_view what;
};

// Of binary files.
constexpr std::array kBinaryFilePrefixes = {
    Beginning{"\x1f\x8b"sv, "it is packed with gzip: unpack it with gunzip first"},
    Beginning{"\xfd"
              "7zXZ\0"sv,
              "it is packed with xz: unpack it with unxz first"},
    Beginning{"\x28\xb5\x2f\xfd"sv, "it is packed with zstd: unpack it with unzstd first"},
    Beginning{"BZh"sv, "it is packed with bzip2: unpack it with bunzip2 first"},
    Beginning{"PK\5\6"sv, "it is a zip archive without files"},
    Beginning{"7z\xbc\xaf\x27\x1c"sv, "it is a 7z archive: unpack it first"},
    Beginning{"Rar!\x1a\x07"sv, "it is a RAR archive: unpack it first"},
    Beginning{"\x93NUMPY"sv, "it is an array of NumPy (.npy): save a dict of tensors with torch.save instead"},
    Beginning{"\x89HDF\r\n\x1a\n"sv, "it is an HDF5 file, as Keras writes: convert it in Python"},
    Beginning{"GGUF"sv, "it is a GGUF file of llama.cpp: use the model's safetensors files"},
    Beginning{"\x89PNG\r\n\x1a\n"sv, "it is a PNG picture"},
    Beginning{"\xff\xd8\xff"sv, "it is a JPEG picture"},
    Beginning{"%PDF-"sv, "it is a PDF document"},
    Beginning{"\x7f"
              "ELF"sv,
              "it is a program or a library"},
};

std::string_view without_space(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const auto begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

// `lower` is in lower case; ASCII letters of `text` match in either case.
bool begins_with(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char wanted, char c) { return wanted == (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
}

bool is_text(std::string_view beginning) {
  return std::ranges::all_of(beginning, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7f : c == '\n' || c == '\r' || c == '\t';
  });
}

std::string describe_text(std::string_view text) {
  const auto content = without_space(text);
  if (content.starts_with("version https://git-lfs.github.com/spec/")) {
    return "it is a Git LFS pointer, which stands for the file itself: run `git lfs pull` in its repository, or "
           "download the file";
  }
  if (begins_with(content, "<!doctype html") || begins_with(content, "<html") || begins_with(content, "<head")) {
    return "it is an HTML page: the download brought a web page instead of the file (a login or an error, for example)";
  }
  if (begins_with(content, "<?xml")) return "it is an XML document: the download brought an error instead of the file";
  if (content.starts_with('{') || content.starts_with('[')) {
    if (content.find("\"weight_map\"") != std::string_view::npos) {
      return "it is the index of a model in several files: rename it to end in .index.json, and keep it next to those "
             "files";
    }
    return "it is JSON text, not a file with tensors";
  }
  const auto line = content.substr(0, std::min<size_t>(content.find('\n'), 40));
  return "it is text that begins with " + safetensors::quote_name(line);
}

// ONNX has no magic bytes. Its message begins with field 1, the version of its format, and its writer's name (field 2),
// the graph (7) or the operator sets (8) follow. Three bytes like these are also the size of a safetensors file's
// header, whose upper four bytes are zeros.
bool is_onnx(std::string_view bytes) {
  constexpr char kVersion = 0x08;
  constexpr char kWriter = 0x12;
  constexpr char kGraph = 0x3a;
  constexpr char kOperatorSets = 0x42;
  if (bytes.size() < 8 || bytes[0] != kVersion || bytes[1] < 1 || bytes.substr(4, 4) == "\0\0\0\0"sv) return false;
  return bytes[2] == kWriter || bytes[2] == kGraph || bytes[2] == kOperatorSets;
}

// torch.save's magic number as decimal text: the caller chose pickle protocol 0 or 1.
bool is_old_torch_save(std::string_view bytes) {
  return bytes.starts_with("L119547037146038801333356L\n.");
}

// A global of pickle protocol 0, such as "ccollections\nOrderedDict\n", and an opcode that may follow a class name.
bool is_global(std::string_view bytes) {
  const auto take_name = [&](bool may_have_dots) {
    const auto end = bytes.substr(0, 256).find('\n');
    if (end == 0 || end == std::string_view::npos) return false;
    const auto name = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    return std::ranges::all_of(name, [&](char c) {
      const char lower = static_cast<char>(c | 0x20);
      return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || (may_have_dots && c == '.');
    });
  };
  if (!bytes.starts_with('c')) return false;
  bytes.remove_prefix(1);
  return take_name(true) && take_name(false) && !bytes.empty() && "pqr()"sv.find(bytes[0]) != std::string_view::npos;
}

// A pickle of protocol 0 or 1 has no magic bytes. It begins with a dict, a list or the global of a function, and ends
// in a full stop.
bool is_old_pickle(std::string_view bytes) {
  constexpr std::array kContainers = {"(dp"sv, "(lp"sv, "}q\0"sv, "]q\0"sv, "}q\1"sv, "]q\1"sv};
  const auto begins = [&](std::string_view container) { return bytes.starts_with(container); };
  return bytes.ends_with('.') && (std::ranges::any_of(kContainers, begins) || is_global(bytes));
}

bool is_pickle(std::string_view bytes) {
  if (is_old_pickle(bytes)) return true;
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

}  // namespace

std::string describe_unsupported_file(std::string_view bytes, const std::filesystem::path& path) {
  if (bytes.empty()) return "it is empty";
  if (path.extension() == ".distcp" || path.filename() == ".metadata")
    return std::string("it is a file ") + kDistributed;
  const auto beginning = bytes.substr(0, kInspectedBytes);
  for (const auto& known : kBinaryFilePrefixes) {
    if (beginning.starts_with(known.bytes)) return std::string(known.what);
  }
  if (is_onnx(beginning)) return "it is an ONNX model: save a dict of tensors with torch.save instead";
  if (is_old_torch_save(beginning)) {
    return "torch.save wrote it with pickle protocol 0 or 1, which torch.load(weights_only=True) does not read either: "
           "load it in Python with weights_only=False, if you trust it, and save it again without pickle_protocol";
  }
  if (is_pickle(bytes)) {
    return "it is a pickle that torch.save did not write: load it in Python, if you trust it, and save a dict of "
           "tensors with torch.save";
  }
  if (std::ranges::all_of(beginning, [](char c) { return c == '\0'; })) {
    return "its beginning is all zeros: a download or a copy of it was interrupted";
  }
  return is_text(beginning) ? describe_text(beginning) : "";
}

std::string describe_unsupported_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(folder / ".metadata", ignored))
    return std::string("it is a folder ") + kDistributed;
  std::filesystem::directory_iterator entry(folder, ignored);
  for (; !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    if (entry->path().extension() != ".distcp") continue;
    if (std::filesystem::exists(std::filesystem::symlink_status(folder / ".metadata", ignored))) {
      return "it has files of torch.distributed.checkpoint (DCP), but their .metadata is not a regular file: copy that "
             "file from the place where it was saved";
    }
    return "it has files of torch.distributed.checkpoint (DCP), but not their .metadata, which is written last: the "
           "save did not finish, or the folder was not copied completely";
  }
  return "";
}

std::string unsupported_file_or(std::string_view bytes, const std::filesystem::path& path, std::string reason) {
  auto what = describe_unsupported_file(bytes, path);
  return what.empty() ? reason : what;
}

void refuse_tensor_file(std::string_view bytes, const std::filesystem::path& path, std::string reason) {
  const std::string kind = path.extension() == ".safetensors" ? " is not a valid safetensors file: "
                                                              : " cannot be read as a .pt or safetensors file: ";
  throw std::runtime_error(path.string() + kind + unsupported_file_or(bytes, path, std::move(reason)));
}

}  // namespace ddp
