#include <csetjmp>
#include <cstdio>
// The headers of libjpeg need the declarations of <cstdio>.
#include <jpeglib.h>
// This header needs the one above.
#include <jerror.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

/// Replaces libjpeg's coefficient arrays. These remain until the last row is read, so a picture needs up to three times
/// its size. The arrays here return the rows that have been read to the system.
class JpegCoefficients {
 public:
  JpegCoefficients() = default;
  ~JpegCoefficients();
  JpegCoefficients(const JpegCoefficients&) = delete;
  JpegCoefficients& operator=(const JpegCoefficients&) = delete;

  /// `decoder` must have been created, and must be destroyed before this object. Uses its `client_data`.
  void install(jpeg_decompress_struct& decoder);

 private:
  struct Array {
    JBLOCK* blocks = nullptr;
    size_t row_blocks = 0;
    size_t rows = 0;
    size_t released_rows = 0;
    std::vector<JBLOCKROW> row_pointers{};

    size_t bytes() const { return rows * row_blocks * sizeof(JBLOCK); }
  };

  static JpegCoefficients& of(j_common_ptr decoder);
  static jvirt_barray_ptr request_virt_barray(j_common_ptr decoder, int pool, boolean is_zeroed, JDIMENSION row_blocks,
                                              JDIMENSION rows, JDIMENSION most_rows);
  static void realize_virt_arrays(j_common_ptr decoder);
  static JBLOCKARRAY access_virt_barray(j_common_ptr decoder, jvirt_barray_ptr which, JDIMENSION first, JDIMENSION rows,
                                        boolean is_written);
  bool add(size_t row_blocks, size_t rows);
  static bool map(Array& array);
  static void release(Array& array, size_t rows);

  std::vector<std::unique_ptr<Array>> arrays_;
  void (*libjpeg_realize_)(j_common_ptr) = nullptr;
};

JpegCoefficients::~JpegCoefficients() {
  for (const auto& array : arrays_) {
    if (array->blocks != nullptr) ::munmap(array->blocks, array->bytes());
  }
}

void JpegCoefficients::install(jpeg_decompress_struct& decoder) {
  decoder.client_data = this;
  libjpeg_realize_ = decoder.mem->realize_virt_arrays;
  decoder.mem->request_virt_barray = request_virt_barray;
  decoder.mem->realize_virt_arrays = realize_virt_arrays;
  decoder.mem->access_virt_barray = access_virt_barray;
}

JpegCoefficients& JpegCoefficients::of(j_common_ptr decoder) {
  return *static_cast<JpegCoefficients*>(decoder->client_data);
}

bool JpegCoefficients::add(size_t row_blocks, size_t rows) {
  try {
    arrays_.push_back(std::make_unique<Array>(Array{.row_blocks = row_blocks, .rows = rows}));
    return true;
  } catch (const std::exception&) {  // exceptions must not propagate through libjpeg
    return false;
  }
}

bool JpegCoefficients::map(Array& array) {
  void* memory =
      ::mmap(nullptr, array.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  array.blocks = static_cast<JBLOCK*>(memory);
  try {
    array.row_pointers.resize(array.rows);
  } catch (const std::exception&) {
    return false;
  }
  for (size_t row = 0; row < array.rows; ++row) array.row_pointers[row] = array.blocks + row * array.row_blocks;
  return true;
}

jvirt_barray_ptr JpegCoefficients::request_virt_barray(j_common_ptr decoder, int /*pool*/, boolean /*is_zeroed*/,
                                                       JDIMENSION row_blocks, JDIMENSION rows,
                                                       JDIMENSION /*most_rows*/) {
  JpegCoefficients& all = of(decoder);
  if (!all.add(row_blocks, rows)) ERREXIT1(decoder, JERR_OUT_OF_MEMORY, 0);
  // libjpeg only passes this pointer back, without dereferencing it.
  return reinterpret_cast<jvirt_barray_ptr>(all.arrays_.back().get());
}

void JpegCoefficients::realize_virt_arrays(j_common_ptr decoder) {
  JpegCoefficients& all = of(decoder);
  all.libjpeg_realize_(decoder);
  for (const auto& array : all.arrays_) {
    if (array->blocks == nullptr && !map(*array)) ERREXIT1(decoder, JERR_OUT_OF_MEMORY, 0);
  }
}

JBLOCKARRAY JpegCoefficients::access_virt_barray(j_common_ptr decoder, jvirt_barray_ptr which, JDIMENSION first,
                                                 JDIMENSION rows, boolean is_written) {
  auto& array = *reinterpret_cast<Array*>(which);
  if (size_t{first} + rows > array.rows || array.blocks == nullptr) ERREXIT(decoder, JERR_BAD_VIRTUAL_ACCESS);
  // Read accesses produce the output from top to bottom. They look back at most two rows of 4 blocks, to smooth a
  // picture whose last scans are missing.
  constexpr size_t kLookBackRows = 16;
  if (is_written == FALSE && first > kLookBackRows) release(array, first - kLookBackRows);
  return array.row_pointers.data() + first;
}

void JpegCoefficients::release(Array& array, size_t rows) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t row_bytes = array.row_blocks * sizeof(JBLOCK);
  const size_t begin = array.released_rows * row_bytes / page * page;
  const size_t end = rows * row_bytes / page * page;
  constexpr size_t kMinReleasedBytes = size_t{1} << 20;
  if (end < begin + kMinReleasedBytes) return;
  ::madvise(reinterpret_cast<char*>(array.blocks) + begin, end - begin, MADV_DONTNEED);
  array.released_rows = rows;
}

struct ScanCount {
  int64_t scans = 0;
  int64_t work = 0;
};

/// libjpeg's error callback must not return. It may use longjmp, because only C code lies in between.
struct ErrorHandler {
  jpeg_error_mgr manager{};  // must be the first member: libjpeg receives its address
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  jpeg_progress_mgr progress{};
  int64_t file_bytes = 0;
  ScanCount count{};  // the scans that libjpeg has begun
};

ErrorHandler& handler_of(j_common_ptr decoder) {
  return *reinterpret_cast<ErrorHandler*>(decoder->err);
}

[[noreturn]] void stop(j_common_ptr decoder) {
  ErrorHandler& handler = handler_of(decoder);
  handler.manager.format_message(decoder, handler.message.data());
  std::longjmp(handler.back, 1);
}

/// A level of -1 is a warning. Missing data is an error here: libjpeg continues with grey, which is useless for
/// training. Other irregularities, such as bytes between two markers, are common and harmless.
void note(j_common_ptr decoder, int level) {
  const int code = decoder->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) stop(decoder);
}

int64_t blocks_of(const jpeg_component_info& component) {
  return int64_t{component.width_in_blocks} * component.height_in_blocks;
}

int64_t blocks_of(const jpeg_decompress_struct& decoder) {
  int64_t blocks = 0;
  for (int i = 0; i < decoder.num_components; ++i) blocks += blocks_of(decoder.comp_info[i]);
  return blocks;
}

/// The coefficients that a scan contains: the first, the last, and the bit above those that it refines.
struct ScanBand {
  int first = 0;
  int last = 0;
  int high_bit = 0;
};

/// The work of a scan over `blocks` blocks; see max_jpeg_work().
int64_t scan_work(const jpeg_decompress_struct& decoder, int64_t blocks, const ScanBand& band) {
  // With arithmetic coding, a coefficient may need no bytes at all.
  if (decoder.arith_code != FALSE)
    return blocks * kCoefficientWork * std::clamp(band.last - band.first + 1, 1, DCTSIZE2);
  constexpr int64_t kBits = 3;  // each block has its own bits
  constexpr int64_t kRun = 1;   // for a run of blocks that the scan does not change
  if (decoder.progressive_mode == FALSE || band.first == 0) return blocks * kBits;
  return blocks * (band.high_bit == 0 ? kRun : kRefinementWork);
}

[[noreturn]] void refuse_scans(ErrorHandler& handler, int64_t most, bool is_many) {
  if (most == 0) {
    std::snprintf(handler.message.data(), handler.message.size(),
                  "arithmetic coding is not read for a picture of this size");
  } else {
    std::snprintf(handler.message.data(), handler.message.size(), "more than %d scans%s", static_cast<int>(most),
                  is_many ? "" : " for a picture of this size");
  }
  std::longjmp(handler.back, 1);
}

/// Counts a scan, and rejects the file if it has too many scans or needs too much work. A scan of a progressive file
/// passes over the whole picture but may need only a few bytes, so a small file could keep a program busy for hours.
/// Encoders write about ten. The first scan of a file with Huffman codes is always allowed.
void add_scan(const jpeg_decompress_struct& decoder, ErrorHandler& handler, ScanCount& count, int64_t work) {
  constexpr int64_t kMaxScans = 500;
  constexpr int64_t kPicture = 64;  // the work per block for converting coefficients to pixels
  ++count.scans;
  count.work += work;
  if (count.scans > kMaxScans) refuse_scans(handler, kMaxScans, /*is_many=*/true);
  if (count.scans == 1 && decoder.arith_code == FALSE) return;
  if (count.work + kPicture * blocks_of(decoder) <= max_jpeg_work(handler.file_bytes)) return;
  refuse_scans(handler, count.scans - 1, /*is_many=*/false);
}

void add_current_scan(const jpeg_decompress_struct& decoder, ErrorHandler& handler) {
  int64_t blocks = 0;
  for (int i = 0; i < decoder.comps_in_scan; ++i) blocks += blocks_of(*decoder.cur_comp_info[i]);
  add_scan(decoder, handler, handler.count, scan_work(decoder, blocks, {decoder.Ss, decoder.Se, decoder.Ah}));
}

/// libjpeg calls this function at least once per scan.
void limit_scans(j_common_ptr decoder) {
  const auto& known = *reinterpret_cast<j_decompress_ptr>(decoder);
  ErrorHandler& handler = handler_of(decoder);
  if (handler.count.scans < known.input_scan_number) add_current_scan(known, handler);
}

/// Counts the scans that follow the header of the first scan, in the data that libjpeg has not read yet. A file with
/// too many scans is thus rejected before any of them is read.
void check_further_scans(const jpeg_decompress_struct& decoder, ErrorHandler& handler) {
  ScanCount count = handler.count;
  const JOCTET* bytes = decoder.src->next_input_byte;
  const size_t size = decoder.src->bytes_in_buffer;
  for (size_t i = 1; i + 3 < size; ++i) {
    if (bytes[i - 1] != 0xFF || bytes[i] != 0xDA) continue;
    const size_t components = bytes[i + 3];
    const size_t band = i + 4 + 2 * components;
    if (band + 2 >= size) return;
    int64_t blocks = 0;
    for (size_t k = i + 4; k < band; k += 2) {
      for (int c = 0; c < decoder.num_components; ++c) {
        if (decoder.comp_info[c].component_id == bytes[k]) blocks += blocks_of(decoder.comp_info[c]);
      }
    }
    add_scan(decoder, handler, count, scan_work(decoder, blocks, {bytes[band], bytes[band + 1], bytes[band + 2] >> 4}));
  }
}

enum class Outcome { kDone, kTooLarge, kFailed };

/// Checks the memory and work of the scans. With several scans, all coefficients are kept until the picture is made.
void check_scans(const jpeg_decompress_struct& decoder, const Image& image, ErrorHandler& handler,
                 const std::filesystem::path& path) {
  add_current_scan(decoder, handler);
  if (jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&decoder)) == FALSE) return;
  const auto bytes = blocks_of(decoder) * static_cast<int64_t>(sizeof(JBLOCK));
  check_working_memory(path, bytes - image.height * image.width * 3, handler.file_bytes,
                       "the coefficients of several scans");
  check_further_scans(decoder, handler);
}

/// Reads one row of CMYK and converts it to RGB. Adobe's and other programs write inverted inks, so that 255 means no
/// ink; Pillow treats every file that way.
void read_cmyk_row(jpeg_decompress_struct& decoder, std::vector<uint8_t>& inks, uint8_t* rgb) {
  JSAMPROW row = inks.data();
  jpeg_read_scanlines(&decoder, &row, 1);
  for (uint8_t& ink : inks) ink = static_cast<uint8_t>(255 - ink);
  cmyk_to_rgb(inks.data(), decoder.output_width, rgb);
}

using ChooseBox = std::function<DecodedBox(int64_t height, int64_t width)>;

/// The state of decode(). It is stored in the caller, because a longjmp would skip its destructors in decode().
struct JpegRead {
  const std::vector<uint8_t>& bytes;
  const std::filesystem::path& path;
  const DecodeOptions& options;
  const ChooseBox& choose;
  jpeg_decompress_struct decoder{};
  ErrorHandler handler{};
  JpegCoefficients coefficients{};
  std::vector<uint8_t> inks{};    // a buffer for one row
  std::vector<uint8_t> unused{};  // a buffer for one unused row
  DecodedPart part{};
};

/// Makes libjpeg skip the data outside of the box. Returns the row after the last row of the box.
int64_t begin_box(JpegRead& read, const DecodedBox& chosen) {
  jpeg_decompress_struct& decoder = read.decoder;
  const Box& box = chosen.box;
  constexpr int64_t kMargin = 8;  // otherwise the outermost columns and rows would lack neighbours for smoothing
  const int64_t begin = std::max<int64_t>(0, box.left - kMargin);
  const int64_t end = std::min<int64_t>(decoder.output_width, box.left + box.width + kMargin);
  auto left = static_cast<JDIMENSION>(begin);
  auto width = static_cast<JDIMENSION>(end - begin);
  if (end - begin < int64_t{decoder.output_width}) jpeg_crop_scanline(&decoder, &left, &width);
  const int64_t top = std::max<int64_t>(0, box.top - kMargin);
  if (top > 0) jpeg_skip_scanlines(&decoder, static_cast<JDIMENSION>(top));
  read.part.top = top;
  read.part.left = left;
  read.part.pixels.width = decoder.output_width;
  const int64_t last = std::min<int64_t>(decoder.output_height, box.top + box.height);
  read.part.pixels.height = last - top;
  return last;
}

/// Makes libjpeg read the data after the box without producing pixels. The last row must be read, because libjpeg reads
/// no data when the last row is skipped.
void read_rest(JpegRead& read) {
  jpeg_decompress_struct& decoder = read.decoder;
  const JDIMENSION before_last = decoder.output_height - 1;
  if (decoder.output_scanline < before_last) jpeg_skip_scanlines(&decoder, before_last - decoder.output_scanline);
  read.unused.resize(size_t{decoder.output_width} * static_cast<size_t>(decoder.output_components));
  JSAMPROW row = read.unused.data();
  while (decoder.output_scanline < decoder.output_height) jpeg_read_scanlines(&decoder, &row, 1);
}

/// The part that longjmp may leave. It must contain no object with a destructor, because longjmp would not call it.
Outcome decode(JpegRead& read) {
  jpeg_decompress_struct& decoder = read.decoder;
  Image& image = read.part.pixels;
  if (setjmp(read.handler.back) != 0) return Outcome::kFailed;
  jpeg_create_decompress(&decoder);
  read.coefficients.install(decoder);
  decoder.progress = &read.handler.progress;
  jpeg_mem_src(&decoder, read.bytes.data(), read.bytes.size());
  jpeg_read_header(&decoder, TRUE);
  image.height = decoder.image_height;
  image.width = decoder.image_width;
  if (image.height < 1 || image.width < 1 || image.height > read.options.most_pixels / image.width)
    return Outcome::kTooLarge;
  check_unpacked_size(read.path, image.height * image.width * decoder.num_components, read.handler.file_bytes);
  check_scans(decoder, image, read.handler, read.path);
  const bool has_inks = decoder.jpeg_color_space == JCS_CMYK || decoder.jpeg_color_space == JCS_YCCK;
  decoder.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
  DecodedBox chosen{.box = {.height = image.height, .width = image.width}};
  if (read.choose) chosen = read.choose(image.height, image.width);
  decoder.scale_denom = static_cast<unsigned>(chosen.reduction);
  jpeg_start_decompress(&decoder);
  const auto last = static_cast<JDIMENSION>(begin_box(read, chosen));
  const auto row_bytes = static_cast<size_t>(image.width * 3);
  image.pixels.reserve(static_cast<size_t>(image.height) * row_bytes);
  if (has_inks) read.inks.resize(static_cast<size_t>(image.width * 4));
  while (decoder.output_scanline < last) {
    JSAMPROW row = add_row(image.pixels, row_bytes);
    if (has_inks) {
      read_cmyk_row(decoder, read.inks, row);
    } else {
      jpeg_read_scanlines(&decoder, &row, 1);
    }
  }
  if (chosen.reads_all) read_rest(read);
  if (decoder.output_scanline == decoder.output_height) jpeg_finish_decompress(&decoder);
  return Outcome::kDone;
}

}  // namespace

DecodedPart decode_jpeg_box(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                            const DecodeOptions& options, const ChooseBox& choose) {
  JpegRead read{.bytes = bytes, .path = path, .options = options, .choose = choose};
  read.handler.file_bytes = static_cast<int64_t>(bytes.size());
  const std::unique_ptr<jpeg_decompress_struct, decltype(&jpeg_destroy_decompress)> owner(&read.decoder,
                                                                                          jpeg_destroy_decompress);
  read.decoder.err = jpeg_std_error(&read.handler.manager);
  read.handler.manager.error_exit = stop;
  read.handler.manager.emit_message = note;
  read.handler.progress.progress_monitor = limit_scans;
  switch (decode(read)) {
    case Outcome::kFailed:
      throw DataError(path, std::string("not a valid JPEG file: ") + read.handler.message.data());
    case Outcome::kTooLarge:
      check_image_size(path, read.part.pixels.height, read.part.pixels.width, options);
      break;
    case Outcome::kDone:
      break;
  }
  return std::move(read.part);
}

Image decode_jpeg(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  return decode_jpeg_box(bytes, path, options, nullptr).pixels;
}

}  // namespace ddp
