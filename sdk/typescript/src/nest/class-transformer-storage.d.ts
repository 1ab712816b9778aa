// class-transformer has no public way to ask whether a property has @Type or @Transform.
declare module 'class-transformer/cjs/storage.js' {
  export const defaultMetadataStorage: {
    findTypeMetadata(target: unknown, property: string): unknown;
    findTransformMetadatas(target: unknown, property: string, transformation: number): unknown[];
  };
}
