//! A table as Apache Parquet: one row group, snappy, missing numbers as nulls.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use super::{MADE_BY, Table, Values};

/// Writes the whole file.
pub fn write(table: &Table, out: &mut (impl Write + Send)) -> io::Result<()> {
    write_file(table, out).map_err(|error| match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    })
}

fn write_file(table: &Table, out: &mut (impl Write + Send)) -> Result<(), ParquetError> {
    let fields = table.columns.iter().map(|column| field(&column.name, &column.values)).collect::<Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder(table.name).with_fields(fields).build()?);
    let origin = table.origin.as_ref().map(|origin| vec![KeyValue::new(MADE_BY.into(), origin.to_string())]);
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_key_value_metadata(origin).build();
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in &table.columns {
        let mut writer = group.next_column()?.ok_or(ParquetError::General("fewer columns than fields".into()))?;
        write_column(&column.values, &mut writer)?;
        writer.close()?;
    }
    group.close()?;
    file.finish()?;
    Ok(())
}

fn field(name: &str, values: &Values) -> Result<TypePtr, ParquetError> {
    let (physical, logical, repetition) = match values {
        Values::Whole(_) => (Physical::INT64, None, Repetition::REQUIRED),
        Values::Real(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
        Values::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
    };
    let field = Type::primitive_type_builder(name, physical).with_logical_type(logical).with_repetition(repetition);
    Ok(Arc::new(field.build()?))
}

fn write_column(values: &Values, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
    match values {
        Values::Whole(values) => writer.typed::<Int64Type>().write_batch(values, None, None)?,
        Values::Real(values) => {
            let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_nan())).collect();
            let there: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
            writer.typed::<DoubleType>().write_batch(&there, Some(&levels), None)?
        }
        Values::Text(values) => {
            let values: Vec<ByteArray> = values.iter().map(|value| value.as_str().into()).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, None, None)?
        }
        Values::Flag(values) => writer.typed::<BoolType>().write_batch(values, None, None)?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    #[test]
    fn what_was_written_is_read_again_with_its_types() {
        let table = Table::new("t")
            .text("name", ["a", "b"])
            .real("seconds", [Some(0.5), None])
            .whole("bytes", [1, 1 << 62])
            .flag("complete", [true, false]);
        let mut file = Vec::new();
        write(&table, &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        let text = |text: &str| Field::Str(text.into());
        assert_eq!(rows[0], [text("a"), Field::Double(0.5), Field::Long(1), Field::Bool(true)]);
        assert_eq!(rows[1], [text("b"), Field::Null, Field::Long(1 << 62), Field::Bool(false)]);
    }

    #[test]
    fn the_file_says_what_made_the_table() {
        let origin = crate::provenance::Origin::of_file("seed = 1");
        let mut file = Vec::new();
        write(&Table::new("t").whole("bytes", [1]).made_by(&origin), &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        let properties = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert_eq!(properties[0], KeyValue::new("made_by".into(), origin.to_string()));
    }

    #[test]
    fn a_full_disk_is_an_error_of_the_disk() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let table = Table::new("t").whole("bytes", [1, 2]);
        assert_eq!(write(&table, &mut Full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_table_without_rows_is_a_file_too() {
        let mut file = Vec::new();
        write(&Table::new("t").whole("bytes", []), &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
