#include "data/formats/jpeg_coefficients.h"

// Needs what <cstdio> and jpeglib.h declare.
#include <jerror.h>
#include <sys/mman.h>
#include <unistd.h>

#include <exception>

namespace ddp {

JpegCoefficients::~JpegCoefficients() {
  for (const auto& array : arrays_) {
    if (array->blocks != nullptr) ::munmap(array->blocks, array->bytes());
  }
}

void JpegCoefficients::install(jpeg_decompress_struct& decoder) {
  decoder.client_data = this;
  realize_others_ = decoder.mem->realize_virt_arrays;
  decoder.mem->request_virt_barray = request;
  decoder.mem->realize_virt_arrays = realize;
  decoder.mem->access_virt_barray = access;
}

JpegCoefficients& JpegCoefficients::of(j_common_ptr decoder) {
  return *static_cast<JpegCoefficients*>(decoder->client_data);
}

bool JpegCoefficients::add(size_t row_blocks, size_t rows) {
  try {
    arrays_.push_back(std::make_unique<Array>(Array{.row_blocks = row_blocks, .rows = rows}));
    return true;
  } catch (const std::exception&) {  // must not leave through libjpeg
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

jvirt_barray_ptr JpegCoefficients::request(j_common_ptr decoder, int /*pool*/, boolean /*is_zeroed*/,
                                           JDIMENSION row_blocks, JDIMENSION rows, JDIMENSION /*most_rows*/) {
  JpegCoefficients& all = of(decoder);
  if (!all.add(row_blocks, rows)) ERREXIT1(decoder, JERR_OUT_OF_MEMORY, 0);
  // libjpeg only hands the pointer back.
  return reinterpret_cast<jvirt_barray_ptr>(all.arrays_.back().get());
}

void JpegCoefficients::realize(j_common_ptr decoder) {
  JpegCoefficients& all = of(decoder);
  all.realize_others_(decoder);
  for (const auto& array : all.arrays_) {
    if (array->blocks == nullptr && !map(*array)) ERREXIT1(decoder, JERR_OUT_OF_MEMORY, 0);
  }
}

JBLOCKARRAY JpegCoefficients::access(j_common_ptr decoder, jvirt_barray_ptr which, JDIMENSION first, JDIMENSION rows,
                                     boolean is_written) {
  auto& array = *reinterpret_cast<Array*>(which);
  if (size_t{first} + rows > array.rows || array.blocks == nullptr) ERREXIT(decoder, JERR_BAD_VIRTUAL_ACCESS);
  // What only reads is the output, from the first row to the last; it looks back over at most two rows of 4 blocks, to
  // smooth a picture whose last scans are missing.
  constexpr size_t kKept = 16;
  if (is_written == FALSE && first > kKept) release(array, first - kKept);
  return array.row_pointers.data() + first;
}

void JpegCoefficients::release(Array& array, size_t rows) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t row_bytes = array.row_blocks * sizeof(JBLOCK);
  const size_t begin = array.released_rows * row_bytes / page * page;
  const size_t end = rows * row_bytes / page * page;
  constexpr size_t kWorthACall = size_t{1} << 20;
  if (end < begin + kWorthACall) return;
  ::madvise(reinterpret_cast<char*>(array.blocks) + begin, end - begin, MADV_DONTNEED);
  array.released_rows = rows;
}

}  // namespace ddp
